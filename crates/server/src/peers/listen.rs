//! Connections from other nodes.

use super::Shared;
use super::connection::{accept, answer, read_frame_into};
use super::hello::{Hello, Purpose, Verdict};
use super::members::{self, Membership};
use super::parcel;
use super::runs::{Alive, Impostor};
use crate::activity::{Activity, IdleSet};
use crate::engine::Post;
use crate::sockets;
use holdfast_node::{FRAME_BYTES_MAX, Input, NodeId, PeerMessage};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Connections that have not yet proved that they belong to the cluster: a flood of strangers costs
/// no more.
const STRANGERS_MAX: usize = 64;

/// Frames of this size and less are read through a buffer.
const READ_BYTES: usize = 64 << 10;

/// Takes connections until the task is dropped.
pub(crate) async fn listen(listener: TcpListener, shared: Arc<Shared>, membership: Membership) {
    let strangers = Arc::<IdleSet>::default();
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: they come back.
                tracing::warn!("can't take a connection of a peer: {error}");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        sockets::prepare(&stream);
        if strangers.len() >= STRANGERS_MAX && strangers.evict_oldest() {
            tracing::warn!("too many connections without a name: the oldest is closed");
        }
        let stranger = strangers.enter();
        let (shared, membership) = (shared.clone(), membership.clone());
        tokio::spawn(async move {
            let mut stream = stream;
            match meet(&mut stream, &shared, &stranger).await {
                Ok((hello, alive)) => serve(stream, hello, alive, shared, membership).await,
                Err(why) => tracing::warn!("refused a peer's connection from {address}: {why}"),
            }
        });
    }
}

/// Gets to know whoever has dialed. One that has proved that it belongs to the cluster is no
/// stranger any more.
async fn meet(
    stream: &mut TcpStream,
    shared: &Shared,
    stranger: &Arc<Activity>,
) -> Result<(Hello, Option<Alive>), String> {
    let hello = tokio::select! {
        accepted = accept(stream, &shared.key) => accepted?,
        () = stranger.evicted() => return Err("it did not say who it is, and others came".to_owned()),
    };
    stranger.keep();
    let (verdict, alive) = judge(shared, &hello).await;
    answer(stream, &verdict).await.map(|()| (hello, alive))
}

async fn judge(shared: &Shared, hello: &Hello) -> (Verdict, Option<Alive>) {
    let me = shared.me.node;
    let verdict = match (&hello.from, hello.to) {
        // First, whether this is whom the other one means: only then what it says is final.
        (_, Some(to)) if to != me => Verdict::Refused(format!("this is node {me}, not {to}")),
        (Some(from), _) if from.node == me => {
            Verdict::Refused(format!("this is node {me} as well: each needs an id of its own"))
        }
        (Some(from), _) if shared.was_removed(from.node) => Verdict::Removed,
        (Some(from), _) if shared.was_reborn(from.node, from.birth) => Verdict::Reborn,
        (None, _) if hello.purpose != Purpose::Members => {
            Verdict::Refused("only a member may do that".to_owned())
        }
        (Some(from), _) if hello.purpose == Purpose::Members && shared.is_superseded(from) => {
            Verdict::Superseded
        }
        (Some(from), _) if hello.purpose != Purpose::Members => {
            match shared.recognise(from, None).await {
                Ok(alive) => return (Verdict::Welcome(shared.me.clone()), Some(alive)),
                Err(Impostor::AlreadyRuns(address)) => Verdict::AlreadyRuns(address),
                Err(Impostor::Superseded) => Verdict::Superseded,
                Err(Impostor::NotNow) => Verdict::Refused("try again".to_owned()),
            }
        }
        _ => Verdict::Welcome(shared.me.clone()),
    };
    (verdict, None)
}

async fn serve(
    stream: TcpStream,
    hello: Hello,
    alive: Option<Alive>,
    shared: Arc<Shared>,
    membership: Membership,
) {
    let from = hello.from.map(|from| {
        shared.met(from.node, from.contact);
        from.node
    });
    let ended = match (hello.purpose, from, alive) {
        (Purpose::Messages, Some(from), Some(alive)) => hear(stream, from, alive, &shared).await,
        (Purpose::Snapshot, Some(_), _) => parcel::receive(stream, shared).await,
        (Purpose::Members, _, _) => members::answer(stream, &membership).await,
        (_, _, _) => Ok(()),
    };
    if let Err(why) = ended {
        tracing::debug!("a peer's connection ended: {why}");
    }
}

async fn hear(
    stream: TcpStream,
    from: NodeId,
    alive: Alive,
    shared: &Shared,
) -> Result<(), String> {
    let ended = tokio::select! {
        ended = hear_all(stream, from, shared) => ended,
        () = alive.replaced() => Err("the node was started again".to_owned()),
    };
    shared.tell(Input::HungUp(from));
    ended
}

async fn hear_all(stream: TcpStream, from: NodeId, shared: &Shared) -> Result<(), String> {
    let mut stream = BufReader::with_capacity(READ_BYTES, stream);
    let mut frame = Vec::new();
    loop {
        read_frame_into(&mut stream, FRAME_BYTES_MAX, &mut frame).await?;
        let Some(message) = PeerMessage::decode(&frame) else {
            return Err(format!("node {from} says what this version does not understand"));
        };
        while shared.inbox.is_crowded() {
            sleep(Duration::from_millis(1)).await;
        }
        let post = Post::Input(Input::Peer { from, message });
        shared.inbox.post(post).map_err(|trouble| format!("{trouble:?}"))?;
    }
}
