//! Incoming connections: how many there may be, and how long their clients may take.

use super::connection;
use super::door::Door;
use crate::activity::Activity;
use crate::doors::Listener;
use crate::doors::connection_limit::{self, ConnectionLimit};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A request is at most 1 MiB long, which takes this long only over a very slow network.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection's timeouts. How long a client with a session may be silent is up to its session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// How long a client may take to get a session and to authenticate.
    pub(super) begin: Duration,
    /// How long a request may take to arrive, from its first byte to its last, and how long replies
    /// may stay unread.
    pub(super) request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { begin: TIMEOUT, request: TIMEOUT }
    }
}

/// Serves until the future is dropped, which also drops every connection.
pub(super) async fn serve(
    listener: Listener,
    door: Arc<Door>,
    limit: ConnectionLimit,
    timeouts: Timeouts,
) -> io::Result<()> {
    let serve_one = |stream, activity: Arc<Activity>| {
        let serving = connection::serve_client(door.clone(), stream, activity.clone(), timeouts);
        async move {
            tokio::select! {
                () = serving => {}
                () = activity.evicted() => {}
            }
        }
    };
    // The protocol has no way to give a reason: clients try the next server when the connection is
    // closed.
    let refuse = |stream, _| connection_limit::turn_away(stream, b"");
    connection_limit::serve(listener, limit, serve_one, refuse).await
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
    use holdfast_zookeeper::codec::{Connect, Request};
    use std::net::SocketAddr;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, sleep, timeout};

    /// Nothing here takes this long unless it is broken.
    const LONG: Duration = Duration::from_secs(30);

    /// A ZooKeeper door in front of a single node.
    struct TestServer {
        address: SocketAddr,
        running: RunningNode,
        metrics: DoorMetrics,
        _folder: TempDir,
    }

    impl TestServer {
        async fn open(connections_max: usize, timeouts: Timeouts, password: Option<&str>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let peers = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let contact = Contact { peer: "127.0.0.1:1".into(), http: "http://127.0.0.1:1".into() };
            let (place, first) = (folder.path().join("node"), First::Alone);
            let place = DataDir { folder: place, key: None, first, contact, tls: None };
            let running = RunningNode::start(&place, peers).await.unwrap();
            let metrics = running.metrics.door("zookeeper");
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let password = password.map(|password| Password::parse(password).unwrap());
            let users = Arc::new(Authenticator::new(password, running.engine.clone()));
            let commands = running.metrics.commands("zookeeper");
            let door = Door::new(running.engine.clone(), commands, users);
            let limit = ConnectionLimit { connections_max, metrics: metrics.clone() };
            tokio::spawn(serve(listener.into(), Arc::new(door), limit, timeouts));
            Self { address, running, metrics, _folder: folder }
        }

        async fn connect_and_send(&self, bytes: &[u8]) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream
        }

        /// A client with a session.
        async fn client(&self) -> TcpStream {
            let mut stream = self.connect_and_send(&connect().encode()).await;
            frame(&mut stream).await;
            stream
        }
    }

    fn connect() -> Connect {
        Connect {
            protocol_version: 0,
            last_zxid: 0,
            timeout_ms: 60_000,
            session: 0,
            password: vec![0; 16],
            read_only: Some(false),
        }
    }

    async fn frame(stream: &mut TcpStream) -> Vec<u8> {
        let read = async {
            let mut frame = vec![0; stream.read_u32().await.unwrap() as usize];
            stream.read_exact(&mut frame).await.unwrap();
            frame
        };
        timeout(LONG, read).await.expect("a reply")
    }

    async fn is_closed(stream: &mut TcpStream) -> bool {
        let mut rest = Vec::new();
        // A reset ends a connection as well as an orderly close does.
        let _ = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("it is closed");
        rest.is_empty()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_that_does_not_begin_is_hung_up_on() {
        let timeouts = Timeouts { begin: Duration::from_millis(300), request: LONG };
        let house = TestServer::open(10, timeouts, Some("sesame")).await;
        assert!(is_closed(&mut house.connect_and_send(b"").await).await);
        assert!(is_closed(&mut house.connect_and_send(&[0, 0, 0, 45, 0]).await).await);
        // It has a session, and has not sent the password.
        assert!(is_closed(&mut house.client().await).await);
        house.running.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn incomplete_request_times_out() {
        let timeouts = Timeouts { begin: LONG, request: Duration::from_millis(300) };
        let house = TestServer::open(10, timeouts, None).await;
        let (mut idle, mut half) = (house.client().await, house.client().await);
        half.write_all(&[0, 0, 0, 100, 0, 0, 0, 1]).await.unwrap();
        assert!(is_closed(&mut half).await);
        let ping = Request::Ping.encode(-2);
        idle.write_all(&ping).await.unwrap();
        assert!(frame(&mut idle).await.starts_with(&(-2_i32).to_be_bytes()));
        house.running.stop().await;
    }

    /// The Redis door once measured the time limit from the first of a stream of requests.
    #[tokio::test(flavor = "multi_thread")]
    async fn pipelined_requests_each_have_their_own_time_limit() {
        let timeouts = Timeouts { begin: LONG, request: Duration::from_millis(500) };
        let house = TestServer::open(10, timeouts, None).await;
        let mut client = house.client().await;
        // Each write completes one request and begins the next, so one is always incomplete.
        let request = Request::WhoAmI.encode(1);
        let (start, end) = request.split_at(6);
        client.write_all(start).await.unwrap();
        let begun = Instant::now();
        while begun.elapsed() < 4 * timeouts.request {
            sleep(timeouts.request / 20).await;
            client.write_all(&[end, start].concat()).await.unwrap();
            assert!(frame(&mut client).await.starts_with(&1_i32.to_be_bytes()));
        }
        // The last one is still limited.
        assert!(is_closed(&mut client).await);
        house.running.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn silent_connections_make_room_for_clients_and_clients_do_not() {
        let house = TestServer::open(2, Timeouts::default(), None).await;
        let _first = house.client().await;
        let mut silent = house.connect_and_send(b"").await;
        while house.metrics.connections.get() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
        let _second = house.client().await;
        assert!(is_closed(&mut silent).await);
        let mut third = house.connect_and_send(&connect().encode()).await;
        assert!(is_closed(&mut third).await);
        assert_eq!(house.metrics.connections_refused.get(), 1);
        house.running.stop().await;
    }
}
