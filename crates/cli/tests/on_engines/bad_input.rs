//! Wrong URLs, engines that are down or are something else, wrong passwords: each gets an error
//! that says what is wrong, an exit code, and does not hang.

use crate::cli::{CommandResult, Shell};
use crate::servers::postgres::Postgres;
use crate::support::{Cluster, Node, eventually};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

const SCHEMES: [&str; 8] =
    ["holdfast", "redis", "rediss", "etcd", "etcds", "zookeeper", "postgres", "cassandra"];

/// Runs `holdfast lock --on URL a -- touch ran`, which must end within the timeout of all tests.
fn on(url: &str) -> CommandResult {
    let shell = Shell::with_nodes(0);
    let printed = shell.start(["lock", "--on", url, "a", "--", "touch", "ran"]).ended();
    assert!(!shell.file("ran").exists() || printed.code == Some(0), "{url}: {printed:?}");
    printed
}

#[test]
fn bad_urls_are_refused_with_a_hint() {
    let cases = [
        ("mysql://127.0.0.1", "unknown scheme `mysql`"),
        ("", "--on needs the URL"),
        ("localhost", "needs a scheme"),
        ("127.0.0.1:6379", "write `//`"),
        ("redis://", "host is missing"),
        ("etcd://", "host is missing"),
        ("postgres://", "host is missing"),
        ("redis://a:no", "`no` is not a port number"),
        ("redis://a?recipe=lease", "unknown option `recipe`"),
        ("postgres://a/b?recipe=bakery", "recipe"),
        ("memory:", "excludes no other command"),
        ("memory://here", "excludes no other command"),
    ];
    for (url, expected) in cases {
        let printed = on(url);
        assert_eq!(printed.code, Some(64), "{url}: {printed:?}");
        assert!(printed.err.contains(expected), "{url}: {printed:?}");
    }
}

/// A name, TTL or note that the engine does not accept is rejected before anything is taken.
#[test]
fn unsupported_options_are_usage_errors() {
    let cluster = Cluster::start(1);
    let shell = Shell::with_nodes(0).on(&format!("holdfast://127.0.0.1:{}", cluster.nodes[0].port));
    for args in
        [vec!["lock", ""], vec!["lock", "a", "--ttl", "400d"], vec!["lock", "a", "--ttl", "5"]]
    {
        let printed = shell.run(args.iter().copied().chain(["--", "true"]));
        assert_eq!(printed.code, Some(64), "{args:?}: {printed:?}");
    }
}

/// Would fail if a URL in the environment were not used, or if one on the command line did not take
/// precedence.
#[test]
fn command_line_overrides_the_environment() {
    let cluster = Cluster::start(1);
    let server = format!("http://127.0.0.1:{}", cluster.nodes[0].port);
    let shell = Shell::with_nodes(0).on("redis://127.0.0.1:1");
    let printed = shell.run(["lock", "a", "--", "true"]);
    assert_eq!(printed.code, Some(69), "{printed:?}");
    let print = ["--", "sh", "-c", "echo ${HOLDFAST_ON-none}"];
    let native = shell.run(["lock", "a", "--server", &server].into_iter().chain(print));
    assert_eq!((native.code, native.out.as_str()), (Some(0), "none\n"), "{native:?}");
    let engine = server.replace("http", "holdfast");
    let engine = shell.run(["lock", "a", "--on", &engine].into_iter().chain(print));
    assert_eq!((engine.code, engine.out.contains("holdfast://")), (Some(0), true), "{engine:?}");
}

#[test]
fn unreachable_engine_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("a port");
    all_unreachable(closed);
}

#[test]
fn wrong_protocol_is_named() {
    let answers: [Option<&'static [u8]>; 4] = [
        None,
        Some(b""),
        Some(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        Some(&[0xff; 64]),
    ];
    for answer in answers {
        all_unreachable(stranger(answer));
    }
}

/// No engine of any kind is found at this address.
fn all_unreachable(address: SocketAddr) {
    thread::scope(|scope| {
        for scheme in SCHEMES {
            scope.spawn(move || {
                let path = match scheme {
                    "cassandra" => "/locks",
                    "postgres" => "/app?sslmode=disable",
                    _ => "",
                };
                let url = format!("{scheme}://{address}{path}");
                let printed = on(&url);
                assert_eq!(printed.code, Some(69), "{url}: {printed:?}");
                assert!(printed.err.contains(&address.port().to_string()), "{url}: {printed:?}");
            });
        }
    });
}

/// Answers everything with the same bytes, or closes the connection.
fn stranger(answer: Option<&'static [u8]>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("a port");
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            thread::spawn(move || {
                let mut buffer = [0; 1024];
                while let Ok(1..) = connection.read(&mut buffer) {
                    match answer {
                        None => {}
                        Some(b"") => return,
                        Some(answer) => drop(connection.write_all(answer)),
                    }
                }
            });
        }
    });
    address
}

/// A wrong password and a missing one are refused, and no message shows the password.
#[test]
fn wrong_password_is_refused() {
    let mut cluster = Cluster::empty();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let password = folder.path().join("password");
    fs::write(&password, "correct-horse\n").expect("a file can be written");
    let password = password.to_str().expect("a path in UTF-8");
    let port = cluster.new_port();
    let mut node = Node::new(port, &folder.path().join("node"), ["--password-file", password]);
    node.start();
    let (http, redis) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", port + 1));
    for url in [format!("holdfast://:wrong@{http}"), format!("redis://:wrong@{redis}")] {
        // The server may not be up yet.
        let printed = eventually("the password is refused", || {
            Some(on(&url)).filter(|printed| printed.code != Some(69))
        });
        assert_eq!(printed.code, Some(75), "{url}: {printed:?}");
        assert!(printed.err.contains("password") && !printed.err.contains("wrong@"), "{printed:?}");
    }
    for url in [format!("holdfast://{http}"), format!("redis://{redis}")] {
        assert_eq!(on(&url).code, Some(75), "{url}");
    }
    for url in
        [format!("holdfast://:correct-horse@{http}"), format!("redis://:correct-horse@{redis}")]
    {
        let printed = on(&url);
        assert_eq!(printed.code, Some(0), "{url}: {printed:?}");
    }
}

#[test]
#[ignore = "needs PostgreSQL: ./test engines"]
fn wrong_password_is_refused_by_postgres() {
    let port = Postgres::shared().port;
    let url = |password: &str| format!("postgres://ana:{password}@127.0.0.1:{port}/template1");
    let printed = on(&url("wr0ng"));
    assert_eq!(printed.code, Some(75), "{printed:?}");
    assert!(printed.err.contains("password") && !printed.err.contains("wr0ng"), "{printed:?}");
    let missing = on(&format!("postgres://ana@127.0.0.1:{port}/no-such-database?sslmode=disable"));
    assert_eq!(missing.code, Some(75), "{missing:?}");
}
