//! A client that asks to book again while its first booking is under way: nobody who is charged may be
//! told that he was not. `src/booking.rs` tells how it works.

use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use ticketing::tester::Failure;
use ticketing::tester::shop::{Answer, Client, Plan, Shop};

/// Long enough for a second request in the meantime.
const SLOW: (&str, &str) = ("PAYMENT_DELAY_MS", "1000");

fn shop() -> Shop {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_ticketing"));
    let (lock_type, lock_url, postgres_url) = ("distributed_lock".to_owned(), None, None);
    Shop::open(Plan { program, lock_type, lock_url, postgres_url }).unwrap()
}

/// Starts a booking, and returns when its payment is under way.
fn start_booking(client: &Client, ticket: &str) -> JoinHandle<Result<Answer, String>> {
    let (client, ticket) = (client.clone(), ticket.to_owned());
    let booking =
        thread::spawn(move || client.book(&ticket, "ana").map_err(|error| error.to_string()));
    thread::sleep(Duration::from_millis(300));
    booking
}

fn ended(booking: JoinHandle<Result<Answer, String>>) -> Result<Answer, Failure> {
    Ok(booking.join().map_err(|_| "a buyer's thread died")??)
}

/// The answer to a booking was lost, and the client asked again. The second booking paid as well, found
/// the lock released after the first one's sale, and answered `expired`, "nothing was charged". Now it
/// waits for the first one, at whatever instance.
#[test]
fn repeated_booking_waits_for_the_first_one() -> Result<(), Failure> {
    let mut shop = shop();
    let instances = [shop.start(&[SLOW])?, shop.start(&[SLOW])?];
    let mut sold = Vec::new();
    for (ticket, again_at) in [("1", 0), ("2", 1)] {
        instances[0].client.reserve(ticket, "ana")?.served()?;
        let first = start_booking(&instances[0].client, ticket);
        instances[again_at].client.book(ticket, "ana")?.refused(&["already_yours"])?;
        ended(first)?.served()?;
        sold.push((ticket, "ana"));
    }
    instances[0].client.sold_exactly(&sold)?;
    assert_eq!(instances[0].client.payments()?, [0, 2, 0], "each ticket was paid for once");
    Ok(())
}

/// The payment of the repeated booking was declined while that of the first one was not: the client was
/// told `payment_declined`, and had been charged.
#[test]
fn repeated_booking_is_not_declined_if_the_first_one_was_charged() -> Result<(), Failure> {
    let mut shop = shop();
    let good = shop.start(&[SLOW])?;
    let declining = shop.start(&[SLOW, ("PAYMENT_FAILURE_RATE", "1")])?;
    good.client.reserve("1", "ana")?.served()?;
    let first = start_booking(&good.client, "1");
    declining.client.book("1", "ana")?.refused(&["already_yours"])?;
    ended(first)?.served()?;

    // The other way round, the second one is the only one that is charged.
    good.client.reserve("2", "ana")?.served()?;
    let first = start_booking(&declining.client, "2");
    good.client.book("2", "ana")?.served()?;
    ended(first)?.refused(&["payment_declined"])?;
    good.client.sold_exactly(&[("1", "ana"), ("2", "ana")])
}

/// An instance was stopped while it paid, and another one sold the ticket to the same client. When the
/// first one went on, it answered `expired`, "nothing was charged".
#[test]
fn stopped_booking_is_replaced_and_learns_of_the_sale() -> Result<(), Failure> {
    let mut shop = shop();
    let service = shop.start(&[])?;
    let stopped = shop.start(&[SLOW])?;
    stopped.client.reserve("1", "ana")?.served()?;
    let first = start_booking(&stopped.client, "1");
    stopped.pause()?;
    let second = service.client.book("1", "ana");
    stopped.resume()?;
    second?.served()?;
    ended(first)?.refused(&["already_yours"])?;
    service.client.sold_exactly(&[("1", "ana")])
}

/// The same, but the second booking is still paying when the first one goes on: it must not be told that
/// it failed before that is certain.
#[test]
fn stopped_booking_waits_for_the_one_that_has_replaced_it() -> Result<(), Failure> {
    let mut shop = shop();
    let slower = shop.start(&[("PAYMENT_DELAY_MS", "4000")])?;
    let stopped = shop.start(&[SLOW])?;
    stopped.client.reserve("1", "ana")?.served()?;
    let first = start_booking(&stopped.client, "1");
    stopped.pause()?;
    let second = start_booking(&slower.client, "1");
    thread::sleep(Duration::from_secs(3));
    stopped.resume()?;
    ended(first)?.refused(&["already_yours"])?;
    ended(second)?.served()?;
    slower.client.sold_exactly(&[("1", "ana")])
}

/// An instance crashed while it paid: the client can book at another one, after a moment.
#[test]
fn crashed_booking_is_replaced() -> Result<(), Failure> {
    let mut shop = shop();
    let service = shop.start(&[])?;
    let mut doomed = shop.start(&[SLOW])?;
    doomed.client.reserve("1", "ana")?.served()?;
    let first = start_booking(&doomed.client, "1");
    doomed.kill();
    service.client.book("1", "ana")?.served()?;
    assert!(ended(first).is_err(), "its instance is gone");
    service.client.sold_exactly(&[("1", "ana")])
}
