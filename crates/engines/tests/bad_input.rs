//! Wrong URLs, engines that are down or are something else, wrong passwords: each gets an error
//! that says what is wrong and what to try, and never hangs.
#![cfg(all(feature = "holdfast", feature = "redis"))]

use holdfast_locks::{Error, LeaseRef, Locks};
use holdfast_server::{Config, DoorAddress, DoorAddresses, First, Password, Server};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// The timeout of the calls.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Far beyond it, for a busy machine: only a call that hangs takes this long.
const HANGS: Duration = Duration::from_secs(40);

/// The question in each scheme's error when something else is there.
const ENGINES: [(&str, &str); 3] = [
    ("redis", "is a Redis server running on this port?"),
    ("rediss", "is a Redis server with TLS running on this port"),
    ("holdfast", "no Holdfast server answers there"),
];

const PASSWORD: &str = "correct horse";

async fn connect(url: &str) -> Result<Locks, Error> {
    let connecting = Locks::builder().timeout(TIMEOUT).connect(url);
    timeout(HANGS, connecting).await.unwrap_or_else(|_| panic!("{url} hangs"))
}

async fn connect_error(url: &str) -> Error {
    connect(url).await.err().unwrap_or_else(|| panic!("{url} connects"))
}

fn assert_error_contains(url: &str, error: &Error, expected: &[&str]) {
    let said = error.to_string();
    for part in expected {
        assert!(said.contains(part), "{url}: {said:?} does not say {part:?}");
    }
}

/// URLs that are refused before anything is sent.
#[tokio::test]
async fn bad_urls_are_refused_with_a_hint() {
    let cases: &[(&str, &[&str])] = &[
        ("mysql://127.0.0.1", &["unknown scheme `mysql`", "redis://", "holdfast://"]),
        ("localhost", &["needs a scheme", "redis://127.0.0.1:6379"]),
        ("localhost:6379", &["write `//`"]),
        ("redis:", &["host is missing", "redis://127.0.0.1:6379"]),
        ("redis://", &["host is missing"]),
        ("redis://a,", &["host is missing"]),
        ("redis://a:no", &["`no` is not a port number"]),
        ("redis://a?recipe=lease", &["unknown option `recipe`", "redis://"]),
        ("redis://secret@a", &["user without a password", "redis://:password@host"]),
        ("redis://a/two", &["`/two` is not a database number", "/2"]),
        ("redis://a:1,b:2,a:1", &["a:1 is listed twice", "independent"]),
        ("rediss://a?ssl_ca_certs=nowhere.pem", &["ssl_ca_certs=nowhere.pem", "No such file"]),
        ("holdfast:", &["host is missing", "holdfast://127.0.0.1:7400"]),
        ("holdfast://", &["host is missing"]),
        ("holdfast://a?pasword=x", &["unknown option `pasword`", "password"]),
        ("holdfast://a/locks", &["`/locks`", "no path"]),
        ("holdfast://:p%0Ass@a", &["password", "control characters"]),
    ];
    for (url, expected) in cases {
        let error = connect_error(url).await;
        assert!(matches!(error, Error::BadUrl(_)), "{url}: {error:?}");
        assert_error_contains(url, &error, expected);
        assert!(!error.to_string().contains("p%0A"), "{error}");
    }
}

/// The same for the engines whose servers this test can't start.
#[cfg(all(feature = "cassandra", feature = "etcd", feature = "postgres", feature = "zookeeper"))]
#[tokio::test]
async fn missing_host_is_reported_for_every_engine() {
    for scheme in ["cassandra", "etcd", "etcds", "postgres", "postgresql", "zookeeper"] {
        for rest in ["", "//", "///path", "//a,,b/path"] {
            let url = format!("{scheme}:{rest}");
            let error = connect_error(&url).await;
            assert!(matches!(error, Error::BadUrl(_)), "{url}: {error:?}");
            assert_error_contains(&url, &error, &["host is missing"]);
        }
    }
}

/// Nobody listens on the port.
#[tokio::test]
async fn unreachable_engine_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (scheme, engine) in ENGINES {
        let url = format!("{scheme}://{closed}");
        let error = connect_error(&url).await;
        assert!(matches!(error, Error::Unreachable(_)), "{url}: {error:?}");
        assert_error_contains(&url, &error, &[&closed.to_string(), engine]);
    }
    // Of three Redis servers a majority must answer.
    let url = format!("redis://{closed},127.0.0.2:1,127.0.0.3:1");
    let error = connect_error(&url).await;
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
}

/// Something else listens on the port: it says nothing, closes the connection, or sends what no
/// engine sends.
#[tokio::test]
async fn wrong_protocol_is_named() {
    let answers: [(&str, Option<&[u8]>); 4] = [
        ("silence", None),
        ("a hang-up", Some(b"")),
        ("HTTP", Some(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")),
        ("noise", Some(&[0xff; 64])),
    ];
    for (what, answer) in answers {
        let address = stranger(answer).await;
        for (scheme, engine) in ENGINES {
            let url = format!("{scheme}://{address}");
            let error = connect_error(&url).await;
            assert!(matches!(error, Error::Unreachable(_)), "{what}, {url}: {error:?}");
            assert_error_contains(&url, &error, &[&address.to_string(), engine]);
        }
    }
}

/// Answers everything with the same bytes, or with nothing.
async fn stranger(answer: Option<&'static [u8]>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(1..) = connection.read(&mut buffer).await {
                    match answer {
                        None => {}
                        Some(b"") => return,
                        Some(answer) => drop(connection.write_all(answer).await),
                    }
                }
            });
        }
    });
    address
}

/// A Holdfast node with a password, and its Redis door.
struct Node {
    http: SocketAddr,
    redis: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
    _folder: tempfile::TempDir,
}

impl Node {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, PASSWORD).unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for _ in 0..20 {
            let (http, redis) = (free(), free());
            let config = Config {
                data_dir: folder.path().join("node"),
                listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
                advertise: None,
                allow_hosts: Vec::new(),
                port: http.port(),
                doors: DoorAddresses::all_off().with("redis", DoorAddress::At(redis)),
                key: None,
                first: First::Alone,
                password: Some(Password::read(&file).unwrap()),
                tls: None,
            };
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let (started, starts) = std::sync::mpsc::channel();
            runtime.spawn(async move {
                let server = Server::start(&config).await;
                let _ = started.send(server.as_ref().map(drop).map_err(Clone::clone));
                if let Ok(server) = server {
                    let _ = server.run(std::future::pending()).await;
                }
            });
            // Another process may have taken a port in the meantime.
            match starts.recv().unwrap() {
                Ok(()) => return Self { http, redis, runtime: Some(runtime), _folder: folder },
                Err(_) => runtime.shutdown_background(),
            }
        }
        panic!("no free ports were found");
    }

    /// Closes its ports and connections.
    fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A wrong password and a missing one are refused, each with where to put the right one; the right
/// one works, whichever way it is given. No error shows a password.
#[tokio::test]
async fn wrong_password_is_reported() {
    let node = tokio::task::spawn_blocking(Node::start).await.unwrap();
    let (http, redis) = (node.http, node.redis);
    let wrong = [
        format!("redis://:wrong%20one@{redis}"),
        format!("redis://somebody:wrong%20one@{redis}"),
        format!("redis://{redis}"),
        format!("holdfast://:wrong%20one@{http}"),
        format!("holdfast://{http}?password=wrong%20one"),
        format!("holdfast://{http}"),
    ];
    for url in wrong {
        let error = connect_error(&url).await;
        assert!(matches!(error, Error::Refused(_)), "{url}: {error:?}");
        assert_error_contains(&url, &error, &["password", "URL"]);
        assert!(!error.to_string().contains("wrong one"), "{error}");
    }
    let right = [
        format!("redis://:correct%20horse@{redis}"),
        format!("redis://default:correct%20horse@{redis}/0"),
        format!("holdfast://:correct%20horse@{http}"),
        format!("holdfast://correct%20horse@{http}"),
        format!("holdfast://{http}?password=correct%20horse"),
    ];
    for url in right {
        let locks = connect(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
        let guard = timeout(HANGS, locks.lock("seat-12A").acquire()).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

/// An engine that goes away while it is in use: every call returns an error, and none of them
/// claims that something is held or free without knowing.
#[tokio::test]
async fn lost_engine_is_an_error() {
    let mut node = tokio::task::spawn_blocking(Node::start).await.unwrap();
    let urls = [
        format!("redis://:correct%20horse@{}", node.redis),
        format!("holdfast://:correct%20horse@{}", node.http),
    ];
    let mut used = Vec::new();
    for url in urls {
        let locks = connect(&url).await.unwrap();
        let guard = locks.lock(url.as_str()).acquire().await.unwrap();
        used.push((url, locks, guard));
    }
    node.stop();
    for (url, locks, guard) in used {
        let tried = timeout(HANGS, locks.lock("other").try_acquire()).await;
        let tried = tried.unwrap_or_else(|_| panic!("{url}: an acquire hangs"));
        let unknown = |error: &Error| matches!(error, Error::Unreachable(_) | Error::Unsure { .. });
        assert!(tried.as_ref().is_err_and(unknown), "{url}: {tried:?}");
        let waited = locks.lock("other").wait(Duration::from_millis(100)).acquire();
        let waited = timeout(HANGS, waited).await;
        let waited = waited.unwrap_or_else(|_| panic!("{url}: a wait hangs"));
        assert!(waited.as_ref().is_err_and(unknown), "{url}: {waited:?}");
        let seen = timeout(HANGS, locks.inspect("other")).await;
        let seen = seen.unwrap_or_else(|_| panic!("{url}: an inspection hangs"));
        assert!(matches!(seen, Err(Error::Unreachable(_))), "{url}: {seen:?}");
        let released = timeout(HANGS, guard.release()).await;
        let released = released.unwrap_or_else(|_| panic!("{url}: a release hangs"));
        assert!(matches!(released, Err(Error::Unsure { .. })), "{url}: {released:?}");
    }
}

/// A lease of one engine means nothing to another.
#[tokio::test]
async fn lease_of_another_engine_is_refused() {
    let node = tokio::task::spawn_blocking(Node::start).await.unwrap();
    let locks = connect(&format!("holdfast://:correct%20horse@{}", node.http)).await.unwrap();
    let elsewhere = Locks::connect("memory:").await.unwrap();
    let guard = elsewhere.lock("seat-12A").acquire().await.unwrap();
    let lease: LeaseRef = guard.detach().await.unwrap();
    let attached = locks.attach(lease).await;
    let Err(Error::Unsupported(why)) = attached else { panic!("{attached:?}") };
    assert!(why.contains("another engine"), "{why}");
}
