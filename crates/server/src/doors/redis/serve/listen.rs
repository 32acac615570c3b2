//! Incoming connections: how many there may be, and how long they may take to authenticate.

use super::connection::Connection;
use super::door::Door;
use crate::activity::Activity;
use crate::doors::Listener;
use crate::doors::connection_limit::{self, ConnectionLimit};
use holdfast_redis::messages;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A request has at most 1 MiB, which takes this long only over a very slow network.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection's timeouts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// How long a client may take to authenticate.
    pub(super) password: Duration,
    /// How long a request may take to arrive, from its first byte to its last.
    pub(super) request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { password: TIMEOUT, request: TIMEOUT }
    }
}

/// Serves until the future is dropped, which also drops every connection.
pub(super) async fn serve(
    listener: Listener,
    door: Arc<Door>,
    limit: ConnectionLimit,
    timeouts: Timeouts,
) -> io::Result<()> {
    let talk = |stream, activity: Arc<Activity>| {
        let connection = Connection::new(door.clone(), stream, activity.clone());
        async move {
            tokio::select! {
                () = connection.talk(timeouts) => {}
                () = activity.evicted() => {}
            }
        }
    };
    let refuse = |stream, _| connection_limit::turn_away(stream, messages::TOO_MANY);
    connection_limit::serve(listener, limit, talk, refuse).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authentication::Authenticator;
    use crate::data::{DataDir, First};
    use crate::metrics::DoorMetrics;
    use crate::node::RunningNode;
    use crate::password::Password;
    use crate::peers::Contact;
    use std::net::SocketAddr;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, sleep, timeout};

    /// Nothing here takes this long unless it is broken.
    const LONG: Duration = Duration::from_secs(30);

    /// A Redis door in front of a single node.
    struct TestDoor {
        address: SocketAddr,
        running: RunningNode,
        metrics: DoorMetrics,
        _folder: TempDir,
    }

    impl TestDoor {
        async fn open(connections_max: usize, timeouts: Timeouts, password: Option<&str>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let peers = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let contact = Contact { peer: "127.0.0.1:1".into(), http: "http://127.0.0.1:1".into() };
            let (place, first) = (folder.path().join("node"), First::Alone);
            let place = DataDir { folder: place, key: None, first, contact, tls: None };
            let running = RunningNode::start(&place, peers).await.unwrap();
            let metrics = running.metrics.door("redis");
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let password = password.map(|password| Password::parse(password).unwrap());
            let users = Arc::new(Authenticator::new(password, running.engine.clone()));
            let commands = running.metrics.commands("redis");
            let door = Door::new(running.engine.clone(), commands, users, address.port());
            let limit = ConnectionLimit { connections_max, metrics: metrics.clone() };
            tokio::spawn(serve(listener.into(), Arc::new(door), limit, timeouts));
            Self { address, running, metrics, _folder: folder }
        }

        async fn send(&self, words: &[u8]) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(words).await.unwrap();
            stream
        }
    }

    async fn expect_reply(stream: &mut TcpStream, expected: &str) {
        let mut received = vec![0; expected.len()];
        timeout(LONG, stream.read_exact(&mut received)).await.expect("a reply").unwrap();
        assert_eq!(String::from_utf8_lossy(&received), expected);
    }

    /// Everything received until the other side closes the connection.
    async fn rest(stream: &mut TcpStream) -> String {
        let mut received = Vec::new();
        let read = timeout(LONG, stream.read_to_end(&mut received)).await;
        let _ = read.expect("the connection is closed");
        String::from_utf8_lossy(&received).into_owned()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unauthenticated_connections_are_closed_after_the_timeout() {
        let timeouts = Timeouts { password: Duration::from_millis(200), request: LONG };
        let house = TestDoor::open(10, timeouts, Some("sesame")).await;
        let mut silent = house.send(b"").await;
        let mut wrong = house.send(b"AUTH wrong\r\nPING\r\n").await;
        let mut right = house.send(b"AUTH sesame\r\n").await;
        expect_reply(&mut right, "+OK\r\n").await;
        assert_eq!(rest(&mut silent).await, "");
        assert!(rest(&mut wrong).await.starts_with("-WRONGPASS"));
        right.write_all(b"PING\r\n").await.unwrap();
        expect_reply(&mut right, "+PONG\r\n").await;
        house.running.stop().await;
    }

    /// Connections that sent nothing used to keep everyone else out indefinitely.
    #[tokio::test(flavor = "multi_thread")]
    async fn idle_connections_are_evicted_for_new_ones() {
        let house = TestDoor::open(2, Timeouts::default(), None).await;
        let mut first = house.send(b"PING\r\n").await;
        expect_reply(&mut first, "+PONG\r\n").await;
        let mut silent = house.send(b"*1\r\n$4\r\nPI").await;
        while house.metrics.connections.get() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
        let mut second = house.send(b"PING\r\n").await;
        expect_reply(&mut second, "+PONG\r\n").await;
        assert_eq!(rest(&mut silent).await, "");
        first.write_all(b"PING\r\n").await.unwrap();
        expect_reply(&mut first, "+PONG\r\n").await;
        assert_eq!(house.metrics.connections_refused.get(), 0);
        house.running.stop().await;
    }

    /// Connections with half a request used to stay open forever, and so did the bytes they had
    /// sent.
    #[tokio::test(flavor = "multi_thread")]
    async fn incomplete_request_times_out() {
        let timeouts = Timeouts { password: LONG, request: Duration::from_millis(200) };
        let house = TestDoor::open(10, timeouts, None).await;
        let mut idle = house.send(b"PING\r\n").await;
        expect_reply(&mut idle, "+PONG\r\n").await;
        let too_slow = "-ERR Protocol error: the rest of the request did not arrive in time\r\n";
        let mut half = house.send(b"PING\r\n*2\r\n$3\r\nGET\r\n$10\r\nabc").await;
        assert_eq!(rest(&mut half).await, format!("+PONG\r\n{too_slow}"));
        let mut typed = house.send(b"GET abc").await;
        assert_eq!(rest(&mut typed).await, too_slow);
        // Trickling byte by byte does not buy more time.
        let mut drips = house.send(b"*2\r\n$3\r\nGET\r\n$500000\r\n").await;
        let dripping = async {
            while drips.write_all(b"x").await.is_ok() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LONG, dripping).await.expect("it is hung up on");
        idle.write_all(b"PING\r\n").await.unwrap();
        expect_reply(&mut idle, "+PONG\r\n").await;
        house.running.stop().await;
    }

    /// The time limit used to run from the first byte of the first incomplete request until a moment
    /// at which nothing was incomplete. A client that streamed requests without a pause, so that
    /// every read ended within one, was hung up on after 30s although each request came at once.
    #[tokio::test(flavor = "multi_thread")]
    async fn pipelined_requests_each_have_their_own_time_limit() {
        let timeouts = Timeouts { password: LONG, request: Duration::from_millis(500) };
        let house = TestDoor::open(10, timeouts, None).await;
        // Each write ends one request and begins the next: at no moment is nothing incomplete.
        let mut stream = house.send(b"*1\r\n$4\r\nPI").await;
        let begun = Instant::now();
        while begun.elapsed() < 4 * timeouts.request {
            sleep(timeouts.request / 20).await;
            stream.write_all(b"NG\r\n*1\r\n$4\r\nPI").await.unwrap();
            expect_reply(&mut stream, "+PONG\r\n").await;
        }
        // The last one is still limited.
        let too_slow = "-ERR Protocol error: the rest of the request did not arrive in time\r\n";
        assert_eq!(rest(&mut stream).await, too_slow);
        house.running.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn connections_beyond_the_limit_are_refused() {
        let house = TestDoor::open(1, Timeouts::default(), None).await;
        let mut first = house.send(b"PING\r\n").await;
        expect_reply(&mut first, "+PONG\r\n").await;
        let mut second = house.send(b"").await;
        assert_eq!(rest(&mut second).await, "-ERR max number of clients reached\r\n");
        assert_eq!(house.metrics.connections_refused.get(), 1);
        drop(first);
        while house.metrics.connections.get() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        let mut third = house.send(b"PING\r\n").await;
        expect_reply(&mut third, "+PONG\r\n").await;
        house.running.stop().await;
    }
}
