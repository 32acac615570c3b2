//! A session's streams, at the level of the protocol.

use crate::server::Node;
use crate::{operator, soon};
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{self as proto, ToClient, ToServer, to_client, to_server};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

struct Stream {
    out: mpsc::Sender<ToServer>,
    incoming: Streaming<ToClient>,
}

impl Stream {
    async fn begin(node: &Node, what: to_server::What) -> Result<Self, Status> {
        let channel = Endpoint::from_shared(node.url.clone()).unwrap().connect().await.unwrap();
        let (out, messages) = mpsc::channel(8);
        out.send(ToServer { number: 1, what: Some(what) }).await.unwrap();
        let incoming = HoldfastClient::new(channel).session(ReceiverStream::new(messages)).await?;
        Ok(Self { out, incoming: incoming.into_inner() })
    }

    async fn next(&mut self) -> Option<to_client::What> {
        soon(self.incoming.message()).await.ok().flatten().and_then(|message| message.what)
    }

    async fn opened(&mut self) -> proto::Opened {
        match self.next().await {
            Some(to_client::What::Opened(opened)) => opened,
            other => panic!("{other:?}"),
        }
    }

    /// Acquires a free lock.
    async fn acquire(&mut self, id: u64, name: &'static str) -> proto::Grant {
        let acquire = proto::Acquire { names: vec![name.into()], ..proto::Acquire::default() };
        let what = Some(proto::request::What::Acquire(acquire));
        let request = to_server::What::Request(proto::Request { id, lowest: id, what });
        self.out.send(ToServer { number: 100 + id, what: Some(request) }).await.unwrap();
        match self.next().await {
            Some(to_client::What::Status(proto::TicketStatus {
                what: Some(proto::ticket_status::What::Held(grant)),
            })) => grant,
            other => panic!("{other:?}"),
        }
    }
}

fn open() -> to_server::What {
    to_server::What::Open(proto::Open { ttl_ms: 60_000, label: None })
}

fn attach(opened: &proto::Opened, tickets: Vec<u64>) -> to_server::What {
    let (session, secret) = (opened.session, opened.secret.clone());
    to_server::What::Attach(proto::Attach { session, secret, tickets })
}

/// A stream whose session was attached to another one of the same node stayed open, had its
/// heartbeats answered, and received no more events: not even that its lock was broken. The same
/// after an attach that was refused.
#[tokio::test]
async fn stream_receives_everything_or_ends() {
    let node = Node::start().await;
    let mut first = Stream::begin(&node, open()).await.unwrap();
    let opened = first.opened().await;
    first.acquire(1, "seat").await;
    let too_many = attach(&opened, (1..=100_001).collect());
    assert!(Stream::begin(&node, too_many).await.is_err());
    let force = |name: &'static str| proto::ForceRequest {
        name: name.into(),
        token: None,
        by: "operator".into(),
        reason: "no".into(),
    };
    let mut operator = operator(&node).await;
    operator.force(force("seat")).await.unwrap();
    assert!(matches!(first.next().await, Some(to_client::What::Ended(_))));

    first.acquire(2, "other").await;
    let mut second = Stream::begin(&node, attach(&opened, Vec::new())).await.unwrap();
    second.opened().await;
    assert_eq!(first.next().await, None);
    operator.force(force("other")).await.unwrap();
    assert!(matches!(second.next().await, Some(to_client::What::Ended(_))));
    node.end().await;
}

/// A ticket was released by another session of the same node, with its secret: the answer went to
/// that session, and the holder was not notified.
#[tokio::test]
async fn holder_learns_of_a_release_by_another_session() {
    let node = Node::start().await;
    let mut holder = Stream::begin(&node, open()).await.unwrap();
    holder.opened().await;
    let grant = holder.acquire(1, "seat").await;
    let mut other = Stream::begin(&node, open()).await.unwrap();
    other.opened().await;
    let own = proto::TicketRef { name: "seat".into(), token: grant.token, secret: grant.secret };
    let what = Some(proto::request::What::Release(own));
    let request = to_server::What::Request(proto::Request { id: 1, lowest: 1, what });
    other.out.send(ToServer { number: 2, what: Some(request) }).await.unwrap();
    assert!(matches!(other.next().await, Some(to_client::What::Done(_))));
    assert!(matches!(holder.next().await, Some(to_client::What::Ended(_))));
    node.end().await;
}
