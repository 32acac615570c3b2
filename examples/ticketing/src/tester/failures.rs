//! Buyers and instances that disappear.

use super::shop::wait_until;
use super::{Bench, Failure};
use crate::settings::LockType;
use std::thread;
use std::time::Duration;

/// Reasons for which a reservation that is over can't be booked, whoever has the ticket now.
const OVER: &[&str] = &["expired", "fenced", "not_reserved", "reserved", "booked"];

pub(super) fn walks_away(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let service = shop.start(&[("TOTAL_TICKETS", "1"), ("RESERVE_SECONDS", "2")])?;
    let client = &service.client;
    client.reserve("1", "ana")?.served()?;
    client.reserve("1", "bo")?.refused(&["reserved"])?;
    wait_until("the ticket is listed again", || Ok(client.available()? == ["1"]))?;
    wait_until("bo can reserve it", || Ok(client.reserve("1", "bo")?.is_ok()))?;
    client.book("1", "ana")?.refused(OVER)?;
    // A slow machine may have let bo's reservation expire, too.
    wait_until("bo can book it", || {
        client.reserve("1", "bo")?.served()?;
        Ok(client.book("1", "bo")?.is_ok())
    })?;
    client.sold_exactly(&[("1", "bo")])?;
    Ok("ana's reservation expired, and bo has the ticket".into())
}

/// The instance that made the reservation is gone when the client books.
pub(super) fn crash(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let service = shop.start(&[("TOTAL_TICKETS", "2")])?;
    let mut doomed = shop.start(&[])?;
    doomed.client.reserve("1", "ana")?.served()?;
    doomed.kill();
    let client = &service.client;
    if bench.lock_type == LockType::EphemeralNode {
        wait_until("the crashed instance's seat is listed", || {
            Ok(client.available()?.contains(&"1".to_owned()))
        })?;
        wait_until("the crashed instance's seat is free", || {
            Ok(client.reserve("1", "bo")?.is_ok())
        })?;
        client.book("1", "ana")?.refused(OVER)?;
        client.book("1", "bo")?.served()?;
        client.sold_exactly(&[("1", "bo")])?;
        return Ok("the crash freed the seat, and bo has it".into());
    }
    client.reserve("1", "bo")?.refused(&["reserved"])?;
    client.book("1", "ana")?.served()?;
    client.sold_exactly(&[("1", "ana")])?;
    Ok("another instance booked ana's reservation".into())
}

/// An instance is stopped while it waits for the payment service. When it goes on, the seat is another
/// client's.
pub(super) fn pause(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let settings = [("TOTAL_TICKETS", "1"), ("RESERVE_SECONDS", "5")];
    let service = shop.start(&settings)?;
    let stopped = shop.start(&[("RESERVE_SECONDS", "5"), ("PAYMENT_DELAY_MS", "2000")])?;
    let client = &service.client;
    stopped.client.reserve("1", "ana")?.served()?;
    let late = stopped.client.clone();
    let booking = thread::spawn(move || late.book("1", "ana"));
    thread::sleep(Duration::from_millis(700));
    stopped.pause()?;
    let reserved = wait_until("bo can reserve the seat", || Ok(client.reserve("1", "bo")?.is_ok()));
    stopped.resume()?;
    reserved?;
    let answer = booking.join().map_err(|_| "a buyer's thread died")??;
    let refused = answer.refused(&["fenced", "expired"])?;
    wait_until("bo can book it", || {
        client.reserve("1", "bo")?.served()?;
        Ok(client.book("1", "bo")?.is_ok())
    })?;
    client.sold_exactly(&[("1", "bo")])?;
    Ok(format!("ana's late booking was refused ({}), and she did not pay", refused.code()))
}
