//! The transactions, on SQLite. The tester runs the same ones on PostgreSQL.

use super::{NewReservation, Payments, Store, Written};
use crate::domain::{Reservation, State, TicketId};

const ONE: TicketId = TicketId(1);
const LINE: &str = "line one";

async fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("shop.db").display());
    let store = Store::open(&url, 3).await.unwrap();
    assert!(store.agree_on(LINE).await.unwrap());
    (folder, store)
}

fn new(client: &str, token: Option<u64>, seconds: u64) -> NewReservation<'_> {
    let (seconds, instance) = (Some(seconds), "a");
    NewReservation { client, token, lease: None, hold: None, seconds, instance, last_ending: None }
}

async fn reservation(store: &Store) -> Reservation {
    match store.ticket(ONE).await.unwrap().unwrap().state {
        State::Reserved(reservation) => reservation,
        other => panic!("{other:?}"),
    }
}

/// Sells ticket 1 for a payment that was authorised.
async fn book(store: &Store, reservation: &Reservation, payment: &str) -> Written {
    store.add_payment(payment, ONE, &reservation.client, reservation.number).await.unwrap();
    sell(store, LINE, reservation, payment).await
}

async fn sell(store: &Store, line: &str, reservation: &Reservation, payment: &str) -> Written {
    store.start_booking(line, ONE, reservation.number, payment).await.unwrap();
    let written = store.book(line, ONE, reservation, payment, payment, "a").await.unwrap();
    store.leave_booking(ONE, payment).await.unwrap();
    written
}

#[tokio::test]
async fn empty_database_is_filled_once() {
    let (folder, store) = store().await;
    let id = store.id().to_owned();
    store.reserve(LINE, ONE, 0, &new("ana", None, 60)).await.unwrap();
    drop(store);
    let url = format!("sqlite:{}", folder.path().join("shop.db").display());
    let store = Store::open(&url, 100).await.unwrap();
    assert_eq!((store.count("tickets").await.unwrap(), store.id()), (3, id.as_str()));
    assert_eq!(reservation(&store).await.client, "ana");
}

#[tokio::test]
async fn recreated_tickets_have_higher_numbers_than_old_reservations() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", None, 60)).await.unwrap();
    let old = reservation(&store).await;
    store.recreate(5).await.unwrap();
    assert_eq!(store.count("tickets").await.unwrap(), 5);
    let number = store.ticket(ONE).await.unwrap().unwrap().number;
    store.reserve(LINE, ONE, number, &new("ana", None, 60)).await.unwrap();
    assert_eq!(book(&store, &old, "p").await, Written::Unmatched);
}

#[tokio::test]
async fn lower_token_is_refused_even_if_the_row_matches() {
    let (_folder, store) = store().await;
    assert_eq!(
        store.reserve(LINE, ONE, 0, &new("ana", Some(34), 60)).await.unwrap(),
        Written::Done
    );
    let ana = reservation(&store).await;
    assert_eq!(store.reserve(LINE, ONE, 1, &new("bo", Some(35), 60)).await.unwrap(), Written::Done);
    let bo = reservation(&store).await;
    let Written::Fenced(why) = book(&store, &ana, "p").await else { panic!() };
    assert!(why.contains("34") && why.contains("35"), "{why}");
    let late = Reservation { token: Some(34), ..bo.clone() };
    assert!(matches!(book(&store, &late, "r").await, Written::Fenced(_)));
    assert_eq!(book(&store, &bo, "q").await, Written::Done);
    assert_eq!(store.sales(9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn row_number_is_the_fence_without_tokens() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", None, 60)).await.unwrap();
    let ana = reservation(&store).await;
    // Two that read number 1 and were both let in by a lock that had expired in between.
    assert_eq!(store.reserve(LINE, ONE, 1, &new("bo", None, 60)).await.unwrap(), Written::Done);
    assert_eq!(
        store.reserve(LINE, ONE, 1, &new("cy", None, 60)).await.unwrap(),
        Written::Unmatched
    );
    assert_eq!(book(&store, &ana, "p").await, Written::Unmatched);
    assert_eq!(store.sales(9).await.unwrap().len(), 0);
}

#[tokio::test]
async fn payments_of_crashed_instances_are_settled() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", None, 60)).await.unwrap();
    let ana = reservation(&store).await;
    store.add_payment("in flight", ONE, "ana", ana.number).await.unwrap();
    store.settle_payments().await.unwrap();
    let payments = store.payments().await.unwrap();
    assert_eq!(payments, Payments { authorised: 1, ..Payments::default() }, "it may be under way");

    // The instance died between the sale and the capture.
    sell(&store, LINE, &ana, "in flight").await;
    // This one died before the sale, and another request of the same client was faster.
    store.add_payment("too late", ONE, "ana", ana.number).await.unwrap();
    store.settle_payments().await.unwrap();
    let payments = store.payments().await.unwrap();
    assert_eq!(payments, Payments { authorised: 0, captured: 1, voided: 1 });
}

/// PgBouncer reported a lost connection for a commit that had taken effect, and the payment was voided:
/// the seat was sold for nothing. Of a void and a sale, only the first takes effect.
#[tokio::test]
async fn payment_with_a_sale_is_never_voided() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", None, 60)).await.unwrap();
    let ana = reservation(&store).await;
    store.add_payment("voided first", ONE, "ana", ana.number).await.unwrap();
    store.void_payment("voided first").await.unwrap();
    let late = sell(&store, LINE, &ana, "voided first").await;
    assert_eq!(late, Written::Unmatched, "nobody gets a seat for a payment that is void");

    assert_eq!(book(&store, &ana, "sold first").await, Written::Done);
    store.void_payment("sold first").await.unwrap();
    store.settle_payments().await.unwrap();
    let payments = store.payments().await.unwrap();
    assert_eq!(payments, Payments { authorised: 0, captured: 1, voided: 1 });
}

/// What earlier versions left behind.
#[tokio::test]
async fn voided_payment_of_a_sale_is_captured_after_all() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", None, 60)).await.unwrap();
    let ana = reservation(&store).await;
    assert_eq!(book(&store, &ana, "p").await, Written::Done);
    let wrong = super::Statement::new("UPDATE payments SET state = 'voided', claimed = 0", []);
    store.transact(wrong).await.unwrap();
    store.settle_payments().await.unwrap();
    assert_eq!(store.payments().await.unwrap().captured, 1);
}

/// A void must come after the reservation is over for good: otherwise an instance that was stopped
/// while it paid could still sell the seat, for a payment that is gone.
#[tokio::test]
async fn a_reservation_is_ended_before_its_payment_is_voided() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", None, 60)).await.unwrap();
    let ana = reservation(&store).await;
    store.add_payment("stopped", ONE, "ana", ana.number).await.unwrap();
    let over = super::Statement::new("UPDATE tickets SET reserved_until_ms = {now} - 6000", []);
    store.transact(over).await.unwrap();
    store.settle_payments().await.unwrap();
    assert_eq!(store.payments().await.unwrap().voided, 1);
    assert_eq!(sell(&store, LINE, &ana, "stopped").await, Written::Unmatched);
}

/// Whoever started alone wrote its line into the database, and three that started together all thought
/// that another one had done so. Now one row decides.
#[tokio::test]
async fn first_line_counts_until_no_live_instance_sees_it() {
    let (_folder, store) = store().await;
    store.note_instance("a", "native", LINE, "holdfast://a").await.unwrap();
    store.note_instance("b", "native", "other", "holdfast://b").await.unwrap();
    assert!(!store.agree_on("other").await.unwrap(), "a lives, and sees another line");
    assert!(store.agree_on(LINE).await.unwrap());
    store.forget_instance("a").await.unwrap();
    store.note_instance("c", "native", "third", "holdfast://c").await.unwrap();
    assert!(!store.agree_on("other").await.unwrap(), "b and c don't agree");
    assert!(!store.agree_on("third").await.unwrap(), "b and c don't agree");
    store.note_instance("c", "native", "other", "holdfast://b").await.unwrap();
    assert!(store.agree_on("other").await.unwrap());
    assert!(store.agree_on("other").await.unwrap());
}

/// A lock service that had lost its data began again with low tokens, and every ticket that had ever been
/// reserved was refused by the fence from then on.
#[tokio::test]
async fn new_line_ends_old_reservations_and_begins_new_fences() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", Some(1_000), 60)).await.unwrap();
    let ana = reservation(&store).await;
    assert!(store.agree_on("other").await.unwrap());
    let ticket = store.ticket(ONE).await.unwrap().unwrap();
    assert_eq!(ticket.state, State::Available);
    // An instance that was stopped in the meantime.
    let late = new("cy", Some(1_001), 60);
    let late = store.reserve(LINE, ONE, ticket.number, &late).await.unwrap();
    assert_eq!(late, Written::OtherLine);
    assert_eq!(book(&store, &ana, "p").await, Written::OtherLine);
    let low = new("bo", Some(1), 60);
    let bo = store.reserve("other", ONE, ticket.number, &low).await.unwrap();
    assert_eq!(bo, Written::Done);
    store.add_payment("q", ONE, "ana", ana.number).await.unwrap();
    let ana = Reservation { token: None, ..ana };
    assert_eq!(sell(&store, "other", &ana, "q").await, Written::Unmatched);
}

/// The fences stayed when the tickets were made again, and so did the locks.
#[tokio::test]
async fn recreated_tickets_have_new_fences_and_locks() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", Some(1_000), 60)).await.unwrap();
    store.recreate(3).await.unwrap();
    let ticket = store.ticket(ONE).await.unwrap().unwrap();
    assert_eq!(ticket.generation, 1);
    let low = new("bo", Some(1), 60);
    assert_eq!(store.reserve(LINE, ONE, ticket.number, &low).await.unwrap(), Written::Done);
}

/// A slow payment ended after the reservation, and the seat was sold although the list showed it as free.
#[tokio::test]
async fn reservation_that_has_ended_is_not_sold() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", None, 60)).await.unwrap();
    let ana = reservation(&store).await;
    let over = super::Statement::new("UPDATE tickets SET reserved_until_ms = {now}", []);
    store.transact(over).await.unwrap();
    assert_eq!(book(&store, &ana, "p").await, Written::Unmatched);
}

/// Two bookings of one client paid at the same time, and the one that was second was told that nothing was
/// charged.
#[tokio::test]
async fn one_booking_of_a_reservation_can_sell_it() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", None, 60)).await.unwrap();
    let start = async |key| store.start_booking(LINE, ONE, 1, key).await.unwrap();
    assert_eq!(start("first").await, Written::Done);
    assert!(reservation(&store).await.is_being_booked);
    assert_eq!(start("second").await, Written::Unmatched);

    // Its instance was stopped.
    let silent = super::Statement::new("UPDATE tickets SET booking_ms = {now} - 2000", []);
    store.transact(silent).await.unwrap();
    assert!(!reservation(&store).await.is_being_booked);
    assert_eq!(start("second").await, Written::Done);
    let ana = reservation(&store).await;
    store.add_payment("p", ONE, "ana", ana.number).await.unwrap();
    let sale = async |key| store.book(LINE, ONE, &ana, key, "p", "a").await.unwrap();
    assert_eq!(sale("first").await, Written::Unmatched);
    assert_eq!(store.renew_booking(ONE, "first").await.unwrap(), Written::Unmatched);
    assert_eq!(store.leave_booking(ONE, "first").await.unwrap(), Written::Unmatched);
    let ended = store.end_reservation(LINE, ONE, "first").await.unwrap();
    assert_eq!(ended, Written::Unmatched, "the reservation is the second one's to end");
    assert_eq!(sale("second").await, Written::Done);
}

/// A refusal that was told must stay true, whatever the booking does later.
#[tokio::test]
async fn ended_reservation_can_not_be_sold() {
    let (_folder, store) = store().await;
    store.reserve(LINE, ONE, 0, &new("ana", None, 60)).await.unwrap();
    let ana = reservation(&store).await;
    store.add_payment("p", ONE, "ana", ana.number).await.unwrap();
    assert_eq!(store.start_booking(LINE, ONE, ana.number, "key").await.unwrap(), Written::Done);
    assert_eq!(store.end_reservation(LINE, ONE, "key").await.unwrap(), Written::Done);
    let late = store.book(LINE, ONE, &ana, "key", "p", "a").await.unwrap();
    assert_eq!(late, Written::Unmatched);
    let (ticket, now_ms) = store.ticket_now(ONE).await.unwrap().unwrap();
    assert!(ticket.is_available(now_ms));
    // Whoever asks again is told again that it has expired.
    assert!(ticket.reserved_by("ana").is_ok_and(|own| own.is_over(now_ms)));
}
