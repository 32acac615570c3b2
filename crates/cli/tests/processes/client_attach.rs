//! A client that reconnects through a node that has not yet applied what the leader has.

use crate::support::Cluster;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{Attach, ToServer, ticket_status, to_client, to_server};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

const ROUNDS: usize = 20;

/// The leader confirmed that the session was alive, and then the node looked for its tickets in its
/// own state, which was behind: a client that held a lock was told that its ticket had been
/// released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_keeps_its_lock_after_attaching_to_a_lagging_node() {
    let mut cluster = Cluster::start(3);
    let (leader, lags) = (cluster.leader(), cluster.follower());
    let leader = cluster.nodes[leader].port;
    let url = format!("http://127.0.0.1:{}", cluster.nodes[lags].port);
    let opened = cluster.http.post_ok(leader, "/v1/sessions/open", &json!({ "ttl_ms": 60_000 }));
    let session = &opened["session"];
    for round in 0..ROUNDS {
        let channel = Endpoint::from_shared(url.clone()).expect("an address").connect().await;
        let mut client = HoldfastClient::new(channel.expect("a connection"));
        cluster.nodes[lags].signal(Signal::STOP);
        let grab = json!({ "name": format!("seat-{round}"), "session": session });
        let grant = cluster.http.post_ok(leader, "/v1/grab_lock", &grab);
        let token = grant["fencing_token"].as_u64().expect("a token");

        let (send, messages) = mpsc::channel(1);
        send.send(attach(session, token)).await.expect("there is room");
        let stream = tokio::spawn(async move {
            client.session(ReceiverStream::new(messages)).await.expect("a stream").into_inner()
        });
        // The node finds the attach in its socket when it is continued.
        sleep(Duration::from_millis(30)).await;
        cluster.nodes[lags].signal(Signal::CONT);
        let mut stream = stream.await.expect("the task ends");
        let first = timeout(Duration::from_secs(30), stream.message()).await.expect("in time");
        match first.expect("an answer").and_then(|message| message.what) {
            Some(to_client::What::Opened(opened)) => {
                let held = |what: &Option<ticket_status::What>| matches!(what, Some(ticket_status::What::Held(grant)) if grant.token == token);
                let stands = opened.tickets.first().map(|ticket| &ticket.what);
                assert!(stands.is_some_and(held), "round {round}: {stands:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

fn attach(session: &Value, token: u64) -> ToServer {
    let secret = session["secret"].as_str().expect("a secret");
    let byte = |at: usize| u8::from_str_radix(&secret[at..at + 2], 16).expect("two digits");
    let secret: Vec<u8> = (0..secret.len()).step_by(2).map(byte).collect();
    let session = session["id"].as_u64().expect("an id");
    let attach = Attach { session, secret: secret.into(), tickets: vec![token] };
    ToServer { number: 1, what: Some(to_server::What::Attach(attach)) }
}
