//! One service and two, as processes of their own: bad input, shared locks, and services that are down.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use ticketing::tester::Failure;
use ticketing::tester::shop::{Instance, Plan, Shop, wait_until};

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
            (r#"{"ticket_id": "3", "client_id": "  "}"#, "it is empty"),
            ("{\"ticket_id\": \"3\", \"client_id\": \"a\u{202e}b\"}", "direction of text"),
            (r#"{"ticket_id": "3", "client_id": "ana", "client_id": "bo"}"#, "duplicate field"),
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
        // Larger than what is kept in memory, and than what a socket buffers: the reply used to be lost.
        let huge = format!(r#"{{"x": "{}"}}"#, "x".repeat(20 << 20));
        client.send(path, json, &huge)?.refused(&["bad_request"])?;
        let form = client.send(path, "text/plain", r#"{"ticket_id": "3", "client_id": "ana"}"#)?;
        assert!(form.status == 400 && form.to_string().contains("Content-Type"), "{form}");
        let latin = client.send(
            path,
            "application/json; charset=latin1",
            r#"{"ticket_id": "3", "client_id": "ana"}"#,
        )?;
        assert!(latin.status == 400 && latin.to_string().contains("utf-8"), "{latin}");
    }
    assert_eq!(client.get("nowhere")?.status, 404);
    let get = client.get("reserve_ticket")?;
    assert_eq!((get.status, get.code()), (405, "method_not_allowed"), "{get}");
    assert_eq!((client.get("healthz")?.status, client.get("readyz")?.status), (200, 200));
    assert_eq!(client.available()?.len(), 10);
    Ok(())
}

/// `GET /lock/%ff` was refused in plain text, and by the framework.
#[test]
fn lock_of_a_name_that_is_not_text_is_refused_like_any_other() -> Result<(), Failure> {
    let mut shop = shop("distributed_lock");
    let service = shop.start(&[])?;
    for name in ["%ff", "99", "three"] {
        service.client.get(&format!("lock/{name}"))?.refused(&["unknown_ticket"])?;
    }
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

    let mut control = shop.command();
    control.env("LOCK_TYPE", "none").env("LOCK_URL", "");
    let refused = shop.run(control).err().ok_or("it started")?.to_string();
    assert!(refused.contains("a seat could be sold twice"), "{refused}");
    Ok(())
}

/// Three doors of one Holdfast: whatever one instance reserves is reserved at the others, shown there,
/// and can be booked there. Booking a lease of another protocol used to be a 503, and one without a
/// lease "expired"; a page of another instance showed the Redis key's value, which releases the lock.
#[test]
fn instances_on_three_doors_share_one_line() -> Result<(), Failure> {
    let mut shop = shop("distributed_lock");
    let redis = shop.start(&[("TOTAL_TICKETS", "20")])?;
    let port = std::fs::read_to_string(format!(
        "{}.holdfast/port",
        shop.database_url().trim_start_matches("sqlite:")
    ))?;
    let port: u16 = port.trim().parse()?;
    let mut start = |lock_type: &str, url: String| {
        let mut command = shop.command();
        command.env("LOCK_TYPE", lock_type).env("LOCK_URL", url);
        shop.run(command)
    };
    let native = start("native", format!("holdfast://127.0.0.1:{port}"))?;
    let ephemeral = start("ephemeral_node", format!("zookeeper://127.0.0.1:{}", port + 2))?;
    let instances = [&redis, &native, &ephemeral];
    let mut sold = Vec::new();
    let mut next: u32 = 0;
    for (reserving, at) in instances.iter().enumerate() {
        for (booking, elsewhere) in instances.iter().enumerate() {
            if reserving == booking {
                continue;
            }
            next += 1;
            let ticket = next.to_string();
            let what = format!("ticket {ticket}, reserved at {reserving}, booked at {booking}");
            let told = |error: Failure| format!("{what}: {error}");
            at.client.reserve(&ticket, "ana")?.served().map_err(told)?;
            elsewhere.client.reserve(&ticket, "ana")?.served().map_err(told)?;
            elsewhere.client.reserve(&ticket, "bo")?.refused(&["reserved"]).map_err(told)?;
            if booking != 0 {
                let shown = elsewhere.client.get(&format!("lock/{ticket}"))?.served()?.body;
                if !shown.is_null() {
                    assert_eq!(shown["holder"], "ana", "{what}: {shown}");
                }
            }
            elsewhere.client.book(&ticket, "bo")?.refused(&["reserved"]).map_err(told)?;
            elsewhere.client.book(&ticket, "ana")?.served().map_err(told)?;
            at.client.book(&ticket, "ana")?.refused(&["already_yours"]).map_err(told)?;
            sold.push((ticket, "ana"));
        }
    }
    let sold: Vec<_> = sold.iter().map(|(ticket, buyer)| (ticket.as_str(), *buyer)).collect();
    native.client.sold_exactly(&sold)?;

    // The czxid of a node is a token of the same counter as Holdfast's own.
    let token = |instance: &Instance, ticket: &str| -> Result<u64, Failure> {
        let answer = instance.client.reserve(ticket, "cy")?.served()?;
        Ok(answer.body["token"].as_u64().ok_or("no token")?)
    };
    let tokens = [token(&native, "7")?, token(&ephemeral, "8")?, token(&native, "9")?];
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert_eq!(redis.client.reserve("10", "cy")?.served()?.body["token"], serde_json::Value::Null);
    Ok(())
}

/// Both wrote their rows, looked for a further sign of life of the other, gave none themselves while
/// they looked, and took each other for dead.
#[test]
fn instances_with_different_locks_that_start_together_are_refused() -> Result<(), Failure> {
    let mut engines = [shop("native"), shop("native")];
    let [one, other] = &mut engines;
    let owners = [one.start(&[])?, other.start(&[])?];
    let target = shop("native");
    let commands = owners.each_ref().map(|owner| {
        let mut command = target.command();
        command.env("LOCK_URL", owner.lock_url.clone().unwrap_or_default());
        command
    });
    let mut children = Vec::new();
    for mut command in commands {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        children.push(quiet.spawn()?);
    }
    // One that starts says so and goes on; one that is refused closes its output.
    let mut ready = 0;
    for child in &mut children {
        let printed = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        ready +=
            printed.map_while(Result::ok).filter(|line| line.contains("Ctrl-C")).take(1).count();
    }
    for child in &mut children {
        let _ = child.kill();
        child.wait()?;
    }
    assert!(ready <= 1, "both started, each with its own locks");
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

/// `init` made the folder and its database, and then asked whether to delete them.
#[test]
fn init_asks_only_if_there_is_something_to_lose() -> Result<(), Failure> {
    let shop = shop("none");
    let file = PathBuf::from(shop.database_url().trim_start_matches("sqlite:"));
    assert!(!file.exists());
    let made = shop.command().args(["init", "--tickets", "4"]).output()?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let asked = shop.command().args(["init", "--tickets", "5"]).output()?;
    let printed = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(!asked.status.success() && printed.contains("4 tickets and 0 sales"), "{printed}");
    Ok(())
}

/// The locks of reservations that `init` had deleted kept the new seats, for as long as they lasted.
#[test]
fn old_locks_do_not_keep_new_seats() -> Result<(), Failure> {
    let mut shop = shop("native");
    let service = shop.start(&[("RESERVE_SECONDS", "600")])?;
    service.client.reserve("1", "ana")?.served()?;
    let done = shop.command().args(["init", "--yes"]).output()?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    service.client.book("1", "ana")?.refused(&["not_reserved"])?;
    service.client.reserve("1", "bo")?.served()?;
    service.client.book("1", "bo")?.served()?;
    service.client.sold_exactly(&[("1", "bo")])
}

#[test]
fn database_url_with_one_slash_is_refused_with_a_hint() -> Result<(), Failure> {
    let started = shop("none").start(&[("DATABASE_URL", "postgres:/ana@db/app")]);
    let refused = started.err().ok_or("it started")?.to_string();
    assert!(refused.contains("postgres://user:password@host/database"), "{refused}");
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
    read_until(r#""client":"ana""#)?;
    service.client.book("3", "ana")?.served()?;
    read_until(r#""state":"booked""#)?;
    Ok(())
}
