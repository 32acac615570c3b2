//! What must end in time: reservations, requests at a database that is locked, and connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use ticketing::tester::Failure;
use ticketing::tester::shop::{Plan, Shop, wait_until};

fn shop(lock_type: &str) -> Shop {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_ticketing"));
    let (lock_type, lock_url, postgres_url) = (lock_type.to_owned(), None, None);
    Shop::open(Plan { program, lock_type, lock_url, postgres_url }).unwrap()
}

/// To see whether a reservation lives, a door that could not attach its lease tried to take the lock. Of
/// two such requests, the second took the first one's try for the reservation: every expired reservation
/// could be booked.
#[test]
fn expired_reservation_is_not_booked_through_another_door() -> Result<(), Failure> {
    let mut shop = shop("distributed_lock");
    let redis = shop.start(&[("RESERVE_SECONDS", "1")])?;
    let file = shop.database_url().trim_start_matches("sqlite:").to_owned();
    let port: u16 = std::fs::read_to_string(format!("{file}.holdfast/port"))?.trim().parse()?;
    let mut start = |lock_type: &str, url: String| {
        let mut command = shop.command();
        command.env("LOCK_TYPE", lock_type).env("LOCK_URL", url).env("RESERVE_SECONDS", "1");
        shop.run(command)
    };
    let native = start("native", format!("holdfast://127.0.0.1:{port}"))?;
    let ephemeral = start("ephemeral_node", format!("zookeeper://127.0.0.1:{}", port + 2))?;
    let instances = [&redis.client, &native.client, &ephemeral.client];
    for (at, elsewhere) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let ticket = "1";
        wait_until("ana can reserve", || Ok(instances[at].reserve(ticket, "ana")?.is_ok()))?;
        wait_until("it is over", || Ok(redis.client.available()?.contains(&ticket.to_owned())))?;
        thread::sleep(Duration::from_millis(700));
        let answers = thread::scope(|scope| {
            let book = || instances[elsewhere].book(ticket, "ana");
            let booking: Vec<_> = (0..12).map(|_| scope.spawn(book)).collect();
            booking.into_iter().map(|one| one.join().map_err(|_| "died")).collect::<Vec<_>>()
        });
        for answer in answers {
            answer??.refused(&["expired"])?;
        }
    }
    redis.client.sold_exactly(&[])
}

/// A payment that took longer than the reservation bought a seat that the list showed as free.
#[test]
fn payment_that_outlasts_the_reservation_buys_nothing() -> Result<(), Failure> {
    for lock_type in ["native", "ephemeral_node"] {
        let mut shop = shop(lock_type);
        let service = shop.start(&[("RESERVE_SECONDS", "2"), ("PAYMENT_DELAY_MS", "2500")])?;
        service.client.reserve("1", "ana")?.served()?;
        service.client.book("1", "ana")?.refused(&["expired"])?;
        service.client.sold_exactly(&[])?;
    }
    Ok(())
}

/// Twenty bookings waited for a locked file one after the other, five seconds each, and everybody who only
/// wanted to see the list waited behind them.
#[test]
fn locked_database_does_not_stop_readers_nor_hold_up_a_queue() -> Result<(), Failure> {
    let mut shop = shop("distributed_lock");
    let service = shop.start(&[("TOTAL_TICKETS", "30"), ("RESERVE_SECONDS", "600")])?;
    let client = &service.client;
    for ticket in 1..=20 {
        client.reserve(&ticket.to_string(), "ana")?.served()?;
    }
    let path = shop.database_url().trim_start_matches("sqlite:").to_owned();
    let writer = rusqlite::Connection::open(path)?;
    writer.execute_batch("BEGIN IMMEDIATE")?;
    let began = Instant::now();
    thread::scope(|scope| -> Result<(), Failure> {
        let book = |ticket: u32| move || client.book(&ticket.to_string(), "ana");
        let booking: Vec<_> = (1..=20).map(|ticket| scope.spawn(book(ticket))).collect();
        thread::sleep(Duration::from_millis(500));
        let reading = Instant::now();
        assert_eq!(client.available()?.len(), 10);
        assert!(reading.elapsed() < Duration::from_secs(2), "a read waited for a writer");
        for one in booking {
            let answer = one.join().map_err(|_| "a thread died")??;
            assert_eq!(answer.status, 503, "{answer}");
        }
        Ok(())
    })?;
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(12), "the queue took {waited:?}");
    writer.execute_batch("ROLLBACK")?;
    wait_until("ana can book", || Ok(client.book("1", "ana")?.is_ok()))?;
    client.sold_exactly(&[("1", "ana")])
}

/// Each state of the page asked for the lock of every reserved seat, and stood still while the lock service
/// hung. From the 51st reservation on, the panel showed nothing.
#[test]
fn page_goes_on_while_the_lock_service_hangs() -> Result<(), Failure> {
    let mut shop = shop("distributed_lock");
    let host = shop.start(&[("TOTAL_TICKETS", "60"), ("RESERVE_SECONDS", "600")])?;
    let service = shop.start(&[("RESERVE_SECONDS", "600")])?;
    for ticket in 1..=60 {
        service.client.reserve(&ticket.to_string(), "ana")?.served()?;
    }
    let lock = service.client.get("lock/60")?.served()?.body;
    assert_eq!(lock["holder"], "ana", "{lock}");
    host.pause()?;
    let told = wait_until("the page says what is wrong", || {
        let asked = Instant::now();
        let state = service.client.get("state")?.served()?.body;
        assert!(asked.elapsed() < Duration::from_secs(2), "it took {:?}", asked.elapsed());
        Ok(state["trouble"].as_str().is_some_and(|trouble| trouble.contains("lock service")))
    });
    host.resume()?;
    told?;
    wait_until("all is well again", || {
        Ok(service.client.get("state")?.served()?.body["trouble"].is_null())
    })
}

/// Requests of which only the beginning arrived were kept forever: a thousand of them took the shop down.
#[test]
fn half_sent_requests_make_room_for_others() -> Result<(), Failure> {
    let mut shop = shop("native");
    let plain = shop.command();
    let mut limited = Command::new("bash");
    limited.args(["-c", "ulimit -n 600; exec \"$0\""]).arg(plain.get_program());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let service = shop.run(limited)?;
    let address = service.client.url().trim_start_matches("http://").to_owned();
    let mut half = Vec::new();
    for _ in 0..700 {
        let mut socket = TcpStream::connect(&address)?;
        socket.write_all(b"POST /reserve_ticket HTTP/1.1\r\nHost: x\r\nX-Slow: ")?;
        half.push(socket);
    }
    service.client.reserve("1", "ana")?.served()?;
    service.client.book("1", "ana")?.served()?;
    // The last one was not evicted: it is closed when its time is over.
    let last = half.last_mut().ok_or("none")?;
    last.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut rest = Vec::new();
    let _ = last.read_to_end(&mut rest);
    assert_eq!(service.client.get("healthz")?.status, 200);
    Ok(())
}
