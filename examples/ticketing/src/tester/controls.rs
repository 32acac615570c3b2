//! What goes wrong without a lock, and with one that has no end.

use super::{Bench, Failure};
use std::thread;
use std::time::Duration;

pub(super) fn sold_twice(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let service = shop.start(&[("TOTAL_TICKETS", "1"), ("PAYMENT_DELAY_MS", "3000")])?;
    let buyers = ["ana", "bo"];
    for buyer in buyers {
        service.client.reserve("1", buyer)?.served()?;
    }
    let bookings = buyers.map(|buyer| {
        let client = service.client.clone();
        thread::spawn(move || client.book("1", buyer))
    });
    for booking in bookings {
        booking.join().map_err(|_| "a buyer's thread died")??.served()?;
    }
    let sales = service.client.sales()?;
    if sales.len() != 2 {
        return Err(format!("the ticket should have been sold twice: {sales:?}").into());
    }
    Ok("ana and bo both paid for ticket 1".into())
}

pub(super) fn stuck(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let settings = [("TOTAL_TICKETS", "1"), ("RESERVE_SECONDS", "1")];
    let mut service = shop.start(&settings)?;
    service.client.reserve("1", "ana")?.served()?;
    service.kill();
    let service = shop.start(&settings)?;
    thread::sleep(Duration::from_secs(5));
    service.client.reserve("1", "bo")?.refused(&["reserved"])?;
    if !service.client.available()?.is_empty() {
        return Err("the ticket should be stuck".into());
    }
    Ok("ana is gone, the instance was restarted, and nobody gets ticket 1".into())
}
