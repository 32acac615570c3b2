//! A thousand sessions wait for one lock over gRPC: all are served in order, with one wake-up each.

use crate::support::{Cluster, eventually};
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{self as proto, request, ticket_status, to_client, to_server};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

const SESSIONS: usize = 1_000;

/// Streams per connection: a server accepts no more than 200.
const STREAMS_PER_CONNECTION: usize = 100;

/// Longer than the test: there are no heartbeats.
const SESSION_TTL_MS: u64 = 600_000;

/// Would fail if a waiter were forgotten, overtaken, served twice or sent anything that does not
/// concern it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_sessions_are_woken_once_and_in_order() {
    let mut cluster = Cluster::start(3);
    let ports = cluster.ports();
    let first = cluster.http.grab(ports[0], "one");
    let served: Arc<Mutex<Vec<u64>>> = Arc::default();
    let mut sessions = JoinSet::new();
    let mut channel = None;
    for number in 0..SESSIONS {
        if number % STREAMS_PER_CONNECTION == 0 {
            let port = ports[number / STREAMS_PER_CONNECTION % ports.len()];
            let server = Endpoint::from_shared(format!("http://127.0.0.1:{port}"));
            channel = Some(server.expect("an address").connect().await.expect("a connection"));
        }
        let channel = channel.clone().expect("a connection");
        sessions.spawn(wait_and_serve(channel, served.clone()));
    }
    let look = || cluster.http.get_ok(ports[1], "/v1/lock?name=one");
    eventually("all stand in line", || (look()["waiting"] == SESSIONS).then_some(()));
    assert!(served.lock().is_ok_and(|served| served.is_empty()), "served while it was held");

    cluster.http.let_go(ports[0], &first);
    let mut streams = Vec::new();
    while let Some(session) = sessions.join_next().await {
        streams.push(session.expect("a session was not served as it should be"));
    }
    {
        let served = served.lock().expect("nobody panicked");
        assert_eq!(served.len(), SESSIONS);
        assert!(served.is_sorted_by(|one, next| one < next), "overtaken: {served:?}");
    }
    assert_eq!((look()["holding"].as_u64(), look()["waiting"].as_u64()), (Some(0), Some(0)));
    // All streams are still open: an event about another session's turn would have arrived by now.
    for session in &mut streams {
        session.gets_nothing_more().await;
    }
}

struct Session {
    out: mpsc::Sender<proto::ToServer>,
    incoming: Streaming<proto::ToClient>,
}

impl Session {
    async fn send(&self, number: u64, what: to_server::What) {
        let message = proto::ToServer { number, what: Some(what) };
        self.out.send(message).await.expect("the stream is open");
    }

    async fn ask(&self, id: u64, what: request::What) {
        let request = proto::Request { id, lowest: id, what: Some(what) };
        self.send(id, to_server::What::Request(request)).await;
    }

    /// The next event, whatever it is.
    async fn next_message(&mut self) -> (u64, to_client::What) {
        let word = self.incoming.message().await.expect("the stream is open");
        let word = word.expect("the stream goes on");
        (word.number, word.what.expect("the server says something"))
    }

    /// The next message is the reply to a heartbeat: nothing came before it.
    async fn gets_nothing_more(&mut self) {
        self.send(99, to_server::What::Beat(proto::Beat {})).await;
        let heard = self.next_message().await;
        assert!(matches!(heard, (99, to_client::What::Alive(_))), "{heard:?}");
    }
}

async fn wait_and_serve(channel: Channel, served: Arc<Mutex<Vec<u64>>>) -> Session {
    let (out, messages) = mpsc::channel(8);
    let open = proto::Open { ttl_ms: SESSION_TTL_MS, label: None };
    let open = proto::ToServer { number: 0, what: Some(to_server::What::Open(open)) };
    out.send(open).await.expect("there is room");
    let incoming = HoldfastClient::new(channel).session(ReceiverStream::new(messages)).await;
    let incoming = incoming.expect("the stream is taken").into_inner();
    let mut session = Session { out, incoming };
    assert!(matches!(session.next_message().await, (0, to_client::What::Opened(_))));

    let names = vec!["one".into()];
    let acquire = proto::Acquire { names, wait_ms: Some(u64::MAX), ..Default::default() };
    session.ask(1, request::What::Acquire(acquire)).await;
    let token = match session.next_message().await {
        (
            1,
            to_client::What::Status(proto::TicketStatus {
                what: Some(ticket_status::What::Waiting(waiting)),
            }),
        ) => waiting.token,
        other => panic!("not in line: {other:?}"),
    };
    // The next event is its turn, with nothing before it.
    match session.next_message().await {
        (0, to_client::What::Granted(grant)) => assert_eq!(grant.token, token),
        other => panic!("not its turn: {other:?}"),
    }
    served.lock().expect("nobody panicked").push(token);
    let own = proto::TicketRef { name: "one".into(), token, secret: Default::default() };
    session.ask(2, request::What::Release(own)).await;
    let released = session.next_message().await;
    assert!(matches!(released, (2, to_client::What::Done(_))), "{released:?}");
    session
}
