//! Many buyers, few tickets, three instances.

use super::shop::{Client, Instance};
use super::{Bench, Failure};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How long the whole crowd may take.
const CROWD_TIMEOUT: Duration = Duration::from_secs(600);

/// A thread waits most of the time, and needs little.
const STACK_BYTES: usize = 512 << 10;

/// What the crowd did.
#[derive(Default)]
struct Tally {
    bought: u64,
    refused: u64,
    failed: Vec<String>,
}

pub(super) fn crowd(bench: &Bench) -> Result<String, Failure> {
    let mut shop = bench.shop()?;
    let tickets = bench.tickets.to_string();
    let settings = [("TOTAL_TICKETS", tickets.as_str())];
    let services: Vec<Instance> =
        (0..3).map(|_| shop.start(&settings)).collect::<Result<_, _>>()?;
    bench.progress.set_length(bench.buyers.into());
    let wanted = bench.tickets as usize;
    let tally = Mutex::new(Tally::default());
    let started = Instant::now();
    thread::scope(|scope| -> Result<(), Failure> {
        for number in 0..bench.buyers {
            let client = &services[number as usize % services.len()].client;
            let (tally, progress) = (&tally, &bench.progress);
            let buyer = move || {
                let name = format!("buyer-{number}");
                let done = buy(client, &name, wanted, started + CROWD_TIMEOUT);
                progress.inc(1);
                let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                match done {
                    Ok((bought, refused)) => {
                        tally.bought += u64::from(bought);
                        tally.refused += refused;
                    }
                    Err(error) => tally.failed.push(error.to_string()),
                }
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, buyer)?;
        }
        Ok(())
    })?;
    let Tally { bought, refused, failed } =
        tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(first) = failed.first() {
        return Err(format!("{} buyers had no answer, the first one: {first}", failed.len()).into());
    }
    let mut sales = services[0].client.sales()?;
    let sold: Vec<(&str, &str)> =
        sales.iter().map(|(ticket, buyer)| (ticket.as_str(), buyer.as_str())).collect();
    services[0].client.sold_exactly(&sold)?;
    sales.sort();
    sales.dedup_by(|one, other| one.0 == other.0);
    if sales.len() != wanted || bought != sales.len() as u64 {
        return Err(format!("{} tickets sold, {bought} buyers happy", sales.len()).into());
    }
    Ok(format!(
        "{} buyers, three instances: {bought} of {tickets} tickets sold, none twice; {refused} requests refused",
        bench.buyers
    ))
}

/// Tries until it has a ticket or all are sold. Says whether it has one, and how often it was refused.
fn buy(
    client: &Client,
    name: &str,
    tickets: usize,
    give_up: Instant,
) -> Result<(bool, u64), Failure> {
    let mut refused = 0;
    while Instant::now() < give_up {
        let available = client.available()?;
        if available.is_empty() {
            if client.sales()?.len() >= tickets {
                return Ok((false, refused));
            }
            thread::sleep(Duration::from_millis(500));
            continue;
        }
        let choice = (crate::random_share() * available.len() as f64) as usize;
        let ticket = &available[choice.min(available.len() - 1)];
        let answer = client.reserve(ticket, name)?;
        if answer.status == 503 {
            // The crowd is too much for a moment.
            thread::sleep(Duration::from_millis(500));
            continue;
        }
        if !answer.is_ok() {
            refused += 1;
            answer.refused(&["reserved", "booked", "fenced"])?;
            continue;
        }
        while Instant::now() < give_up {
            let booked = client.book(ticket, name)?;
            // After a 503 the sale may be there.
            if booked.is_ok() || booked.code() == "already_yours" {
                return Ok((true, refused));
            }
            if booked.status != 503 {
                refused += 1;
                booked.refused(&["expired", "fenced", "reserved", "booked", "not_reserved"])?;
                break;
            }
            thread::sleep(Duration::from_millis(500));
        }
    }
    Err(format!("no end after {}s", CROWD_TIMEOUT.as_secs()).into())
}
