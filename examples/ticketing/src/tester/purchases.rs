//! Purchases in which nothing breaks.

use super::shop::{Client, wait_until};
use super::{Bench, Failure};
use std::thread;

pub(super) fn successful(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let service = shop.start(&[])?;
    let client = &service.client;
    if client.available()?.len() != 10 {
        return Err("an empty database gets ten tickets".into());
    }
    client.reserve("3", "ana")?.served()?;
    if client.available()?.contains(&"3".to_owned()) {
        return Err("a reserved ticket is listed as available".into());
    }
    // The answer was lost, and the client asks again.
    client.reserve("3", "ana")?.served()?;
    client.book("3", "ana")?.served()?;
    client.book("3", "ana")?.refused(&["already_yours"])?;
    client.sold_exactly(&[("3", "ana")])?;
    if client.available()?.len() != 9 {
        return Err("a booked ticket is listed as available".into());
    }
    Ok("ana reserved and booked ticket 3".into())
}

pub(super) fn failed(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let service = shop.start(&[])?;
    let client = &service.client;
    client.reserve("3", "ana")?.served()?;
    client.reserve("3", "bo")?.refused(&["reserved"])?;
    client.book("3", "bo")?.refused(&["reserved"])?;
    client.book("4", "bo")?.refused(&["not_reserved"])?;
    client.reserve("99", "bo")?.refused(&["unknown_ticket"])?;
    client.book("3", "ana")?.served()?;
    client.reserve("3", "bo")?.refused(&["booked"])?;
    client.sold_exactly(&[("3", "ana")])?;
    Ok("bo was refused at once, before paying".into())
}

/// The same, at a service that runs already.
pub(super) fn at_running(client: &Client) -> Result<String, Failure> {
    let ticket =
        client.available()?.pop().ok_or("there is no ticket left: run `ticketing init`")?;
    let name = |who: &str| format!("{who}-{}", &crate::random_hex()[..6]);
    let (ana, bo) = (name("ana"), name("bo"));
    client.reserve(&ticket, &ana)?.served()?;
    client.reserve(&ticket, &bo)?.refused(&["reserved"])?;
    client.book(&ticket, &bo)?.refused(&["reserved"])?;
    client.book(&ticket, &ana)?.served()?;
    client.reserve(&ticket, &bo)?.refused(&["booked"])?;
    Ok(format!("{ana} bought ticket {ticket}, and {bo} was refused"))
}

/// Each ticket is wanted by two buyers at the same moment, at two instances.
pub(super) fn one_ticket(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let services = [shop.start(&[])?, shop.start(&[])?];
    let mut sold = Vec::new();
    for ticket in 1..=10 {
        let ticket = ticket.to_string();
        let buyers = [(&services[0], "ana"), (&services[1], "bo")];
        let answers = thread::scope(|scope| {
            let threads = buyers.map(|(service, buyer)| {
                let ticket = &ticket;
                scope.spawn(move || service.client.reserve(ticket, buyer))
            });
            threads.map(|thread| thread.join().map_err(|_| "a buyer's thread died"))
        });
        let mut winner = None;
        for (answer, (_, buyer)) in answers.into_iter().zip(buyers) {
            let answer = answer??;
            match (answer.is_ok(), winner) {
                (true, None) => winner = Some(buyer),
                (true, Some(_)) => return Err(format!("both reserved ticket {ticket}").into()),
                (false, _) => drop(answer.refused(&["reserved"])?),
            }
        }
        let winner = winner.ok_or("neither buyer could reserve the ticket")?;
        // At the other instance than the one that made the reservation.
        let other = if winner == "ana" { &services[1] } else { &services[0] };
        other.client.book(&ticket, winner)?.served()?;
        sold.push((ticket, winner));
    }
    let sold: Vec<(&str, &str)> =
        sold.iter().map(|(ticket, buyer)| (ticket.as_str(), *buyer)).collect();
    services[0].client.sold_exactly(&sold)?;
    let ana = sold.iter().filter(|(_, buyer)| *buyer == "ana").count();
    Ok(format!("10 races, {ana} won by ana and {} by bo, booked at the other instance", 10 - ana))
}

/// The one who is refused takes the other ticket.
pub(super) fn two_tickets(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let service = shop.start(&[("TOTAL_TICKETS", "2")])?;
    let client = &service.client;
    client.reserve("1", "ana")?.served()?;
    client.reserve("1", "bo")?.refused(&["reserved"])?;
    let left = client.available()?;
    if left != ["2"] {
        return Err(format!("ticket 2 should be available, not {left:?}").into());
    }
    client.reserve("2", "bo")?.served()?;
    client.book("2", "bo")?.served()?;
    client.book("1", "ana")?.served()?;
    client.sold_exactly(&[("1", "ana"), ("2", "bo")])?;
    Ok("ana and bo both have a ticket".into())
}

/// A declined payment changes nothing; with a card that works, the same reservation is booked.
pub(super) fn declined(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let service = shop.start(&[("TOTAL_TICKETS", "1")])?;
    let broke = shop.start(&[("PAYMENT_FAILURE_RATE", "1")])?;
    broke.client.reserve("1", "ana")?.served()?;
    broke.client.book("1", "ana")?.refused(&["payment_declined"])?;
    service.client.sold_exactly(&[])?;
    service.client.book("1", "ana")?.served()?;
    service.client.sold_exactly(&[("1", "ana")])?;
    wait_until("the list is empty", || Ok(service.client.available()?.is_empty()))?;
    Ok("the reservation outlived the declined payment".into())
}
