//! One service and two, as processes of their own: bad input, shared locks, and services that are down.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;
use ticketing::tester::Failure;
use ticketing::tester::shop::{Plan, Shop, wait_until};

fn shop(lock_type: &str) -> Shop {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_ticketing"));
    let (lock_type, lock_url, postgres_url) = (lock_type.to_owned(), None, None);
    Shop::open(Plan { program, lock_type, lock_url, postgres_url }).unwrap()
}

#[test]
fn bad_input_is_refused_with_a_reason() -> Result<(), Failure> {
    let mut shop = shop("distributed_lock");
    let service = shop.start(&[])?;
    let client = &service.client;
    let json = "application/json";
    let long = "x".repeat(101);
    for path in ["reserve_ticket", "book_ticket"] {
        for (body, named) in [
            ("", "the request is empty"),
            ("{", "not JSON"),
            ("[]", "not a JSON object"),
            ("{}", "ticket_id is missing"),
            (r#"{"ticket_id": "3"}"#, "client_id is missing"),
            (r#"{"ticket_id": 3, "client_id": "ana"}"#, "ticket_id is not a string"),
            (r#"{"ticket_id": "3", "client_id": null}"#, "client_id is not a string"),
            (r#"{"ticket_id": "3", "client_id": ""}"#, "it is empty"),
            (r#"{"ticket_id": "3", "client_id": "a\nb"}"#, "control character"),
            (&format!(r#"{{"ticket_id": "3", "client_id": "{long}"}}"#), "longer than 100 bytes"),
            (&format!(r#"{{"x": "{}"}}"#, "x".repeat(1 << 20)), "larger than 16 KiB"),
            (r#"{"ticket_id": "11", "client_id": "ana"}"#, "there is no ticket"),
            (r#"{"ticket_id": "03", "client_id": "ana"}"#, "there is no ticket"),
            (
                r#"{"ticket_id": "'; DROP TABLE tickets; --", "client_id": "ana"}"#,
                "there is no ticket",
            ),
        ] {
            let answer = client.send(path, json, body)?;
            let shown = answer.to_string();
            assert!(answer.status == 400 && shown.contains(named), "{path} {body:.80}: {shown}");
        }
        let form = client.send(path, "text/plain", r#"{"ticket_id": "3", "client_id": "ana"}"#)?;
        assert!(form.status == 400 && form.to_string().contains("Content-Type"), "{form}");
    }
    assert_eq!(client.get("nowhere")?.status, 404);
    assert_eq!(client.get("reserve_ticket")?.status, 405);
    assert_eq!((client.get("healthz")?.status, client.get("readyz")?.status), (200, 200));
    assert_eq!(client.available()?.len(), 10);
    Ok(())
}

/// curl sends what it is told: `-H "Content-Type: application/json "` has a space at its end.
#[test]
fn trailing_space_in_content_type_is_accepted() -> Result<(), Failure> {
    let mut shop = shop("distributed_lock");
    let service = shop.start(&[])?;
    let mut socket = TcpStream::connect(service.client.url().trim_start_matches("http://"))?;
    let body = r#"{"ticket_id": "3", "client_id": "ana"}"#;
    let length = body.len();
    write!(
        socket,
        "POST /reserve_ticket HTTP/1.1\r\nHost: 0.localhost:6005\r\nContent-Type: application/json \r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

#[test]
fn second_instance_gets_a_hint_to_share_the_embedded_holdfast() -> Result<(), Failure> {
    let mut shop = shop("distributed_lock");
    let service = shop.start(&[])?;
    let mut second = shop.command();
    second.env("LOCK_URL", "");
    let refused = shop.run(second).err().ok_or("it started")?.to_string();
    let url = service.lock_url.clone().ok_or("no LOCK_URL")?;
    assert!(refused.contains(&format!("LOCK_URL={url}")), "{refused}");

    // The same locks by another protocol are the same line; the controls are not.
    let port = std::fs::read_to_string(format!(
        "{}.holdfast/port",
        shop.database_url().trim_start_matches("sqlite:")
    ))?;
    let mut native = shop.command();
    native.env("LOCK_TYPE", "native").env("LOCK_URL", format!("holdfast://127.0.0.1:{port}"));
    let native = shop.run(native)?;
    service.client.reserve("1", "ana")?.served()?;
    native.client.reserve("1", "bo")?.refused(&["reserved"])?;
    native.client.reserve("2", "bo")?.served()?;
    service.client.reserve("2", "ana")?.refused(&["reserved"])?;
    native.client.book("2", "bo")?.served()?;

    let mut control = shop.command();
    control.env("LOCK_TYPE", "none").env("LOCK_URL", "");
    let refused = shop.run(control).err().ok_or("it started")?.to_string();
    assert!(refused.contains("a seat could be sold twice"), "{refused}");
    Ok(())
}

#[test]
fn instances_with_different_locks_do_not_share_a_database() -> Result<(), Failure> {
    let mut here = shop("native");
    let _first = here.start(&[])?;
    let mut elsewhere = shop("native");
    let other = elsewhere.start(&[])?;
    let mut command = here.command();
    command.env("LOCK_URL", other.lock_url.clone().unwrap_or_default());
    let refused = here.run(command).err().ok_or("it started")?.to_string();
    assert!(refused.contains("its locks are not those"), "{refused}");
    Ok(())
}

#[test]
fn lock_type_without_url_is_refused_with_a_hint() -> Result<(), Failure> {
    for (lock_type, example) in [
        ("etcd", "etcd://127.0.0.1:2379"),
        ("postgres", "postgres://user@127.0.0.1/locks"),
        ("lwt", "cassandra://127.0.0.1:9042/ticketing"),
        ("bakery", "cassandra://127.0.0.1:9042/ticketing"),
    ] {
        let refused = shop(lock_type).start(&[]).err().ok_or("it started")?.to_string();
        assert!(refused.contains(example), "{refused}");
    }
    let refused = shop("native").start(&[("LOCK_URL", "redis://127.0.0.1")]).err();
    let refused = refused.ok_or("it started")?.to_string();
    assert!(refused.contains("holdfast://host"), "{refused}");
    Ok(())
}

/// The lock service of the second instance is inside the first one, which is killed and comes back.
#[test]
fn requests_fail_while_the_lock_service_is_down_and_work_when_it_is_back() -> Result<(), Failure> {
    let mut shop = shop("distributed_lock");
    let mut first = shop.start(&[])?;
    let second = shop.start(&[("RESERVE_SECONDS", "600")])?;
    second.client.reserve("1", "ana")?.served()?;
    first.kill();
    let down = second.client.reserve("2", "bo")?;
    assert_eq!(down.status, 503, "{down}");
    let down = second.client.book("1", "ana")?;
    assert_eq!(down.status, 503, "{down}");
    assert_eq!(second.client.get("readyz")?.status, 503);
    assert_eq!(second.client.get("healthz")?.status, 200);
    second.client.sold_exactly(&[])?;

    let mut again = shop.command();
    again.env("LOCK_URL", "");
    let _first = shop.run(again)?;
    wait_until("ana can book", || Ok(second.client.book("1", "ana")?.is_ok()))?;
    wait_until("bo can reserve", || Ok(second.client.reserve("2", "bo")?.is_ok()))?;
    second.client.sold_exactly(&[("1", "ana")])
}

#[test]
fn requests_fail_while_the_database_is_locked_and_work_afterwards() -> Result<(), Failure> {
    let mut shop = shop("distributed_lock");
    let service = shop.start(&[])?;
    let path = shop.database_url().trim_start_matches("sqlite:").to_owned();
    let writer = rusqlite::Connection::open(path)?;
    writer.execute_batch("BEGIN IMMEDIATE")?;
    let down = service.client.reserve("1", "ana")?;
    assert_eq!(down.status, 503, "{down}");
    writer.execute_batch("ROLLBACK")?;
    // The lock was given back: it is not in bo's way.
    wait_until("bo can reserve", || Ok(service.client.reserve("1", "bo")?.is_ok()))?;
    service.client.book("1", "bo")?.served()?;
    service.client.sold_exactly(&[("1", "bo")])
}

#[test]
fn reservation_survives_a_full_restart() -> Result<(), Failure> {
    let mut shop = shop("native");
    let mut service = shop.start(&[("RESERVE_SECONDS", "600")])?;
    service.client.reserve("1", "ana")?.served()?;
    service.stop()?;
    let mut again = shop.command();
    again.env("LOCK_URL", "").env("RESERVE_SECONDS", "600");
    let service = shop.run(again)?;
    service.client.reserve("1", "bo")?.refused(&["reserved"])?;
    service.client.book("1", "ana")?.served()?;
    service.client.sold_exactly(&[("1", "ana")])
}

#[test]
fn init_wipes_only_with_confirmation() -> Result<(), Failure> {
    let mut shop = shop("none");
    {
        let service = shop.start(&[])?;
        service.client.book("1", "ana")?.served()?;
    }
    let init = |shop: &Shop, more: &[&str]| {
        shop.command().arg("init").args(["--tickets", "4"]).args(more).output()
    };
    let asked = init(&shop, &[])?;
    let printed = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(!asked.status.success() && printed.contains("10 tickets and 1 sales"), "{printed}");
    let done = init(&shop, &["--yes"])?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let service = shop.start(&[])?;
    assert_eq!(service.client.available()?, ["1", "2", "3", "4"]);
    assert_eq!(service.client.sales()?.len(), 0);
    Ok(())
}

/// The page's events: the state at once, and again after each change.
#[test]
fn events_report_changes() -> Result<(), Failure> {
    let mut shop = shop("native");
    let service = shop.start(&[])?;
    let mut socket = TcpStream::connect(service.client.url().trim_start_matches("http://"))?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(socket, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut seen = String::new();
    let mut read_until = |what: &str| -> Result<(), Failure> {
        let mut buffer = [0; 4096];
        while !seen.contains(what) {
            let bytes = socket.read(&mut buffer)?;
            assert_ne!(bytes, 0, "the stream has ended: {seen}");
            seen += &String::from_utf8_lossy(&buffer[..bytes]);
        }
        Ok(())
    };
    read_until(r#""lock_type":"native""#)?;
    service.client.reserve("3", "ana")?.served()?;
    read_until(r#""holder":"ana""#)?;
    service.client.book("3", "ana")?.served()?;
    read_until(r#""state":"booked""#)?;
    Ok(())
}
