//! Connections from other nodes.

use super::Shared;
use super::connection::{accept, read_frame_into};
use super::hello::{Hello, Purpose, Verdict};
use super::members::{self, Membership};
use super::parcel;
use crate::engine::Post;
use holdfast_node::{FRAME_BYTES_MAX, Input, NodeId, PeerMessage};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Connections that have not yet said who they are: a flood of strangers costs no more.
const STRANGERS_MAX: usize = 64;

/// Frames of this size and less are read through a buffer.
const READ_BYTES: usize = 64 << 10;

/// Takes connections until the task is dropped.
pub(crate) async fn listen(listener: TcpListener, shared: Arc<Shared>, membership: Membership) {
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
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
        let Ok(permit) = strangers.clone().try_acquire_owned() else {
            tracing::warn!("too many connections without a name: {address} is turned away");
            continue;
        };
        let (shared, membership) = (shared.clone(), membership.clone());
        tokio::spawn(async move {
            let mut stream = stream;
            let hello = accept(&mut stream, &shared.key, |hello| judge(&shared, hello)).await;
            drop(permit);
            match hello {
                Ok(hello) => serve(stream, hello, shared, membership).await,
                Err(why) => tracing::warn!("refused a peer's connection from {address}: {why}"),
            }
        });
    }
}

fn judge(shared: &Shared, hello: &Hello) -> Verdict {
    let me = shared.me.node;
    match (&hello.from, hello.to) {
        (Some(from), _) if shared.was_removed(from.node) => Verdict::Removed,
        (Some(from), _) if shared.was_reborn(from.node, from.birth) => Verdict::Reborn,
        (_, Some(to)) if to != me => Verdict::Refused(format!("this is node {me}, not {to}")),
        (Some(from), _) if from.node == me => {
            Verdict::Refused(format!("this is node {me} as well: each needs an id of its own"))
        }
        (None, _) if hello.purpose != Purpose::Members => {
            Verdict::Refused("only a member may do that".to_owned())
        }
        _ => Verdict::Welcome(shared.me.clone()),
    }
}

async fn serve(stream: TcpStream, hello: Hello, shared: Arc<Shared>, membership: Membership) {
    let from = hello.from.map(|from| {
        shared.met(from.node, from.contact);
        from.node
    });
    let ended = match (hello.purpose, from) {
        (Purpose::Messages, Some(from)) => hear(stream, from, &shared).await,
        (Purpose::Snapshot, Some(_)) => parcel::receive(stream, shared).await,
        (Purpose::Members, _) => members::answer(stream, &membership).await,
        (_, None) => Ok(()),
    };
    if let Err(why) = ended {
        tracing::debug!("a peer's connection ended: {why}");
    }
}

async fn hear(stream: TcpStream, from: NodeId, shared: &Shared) -> Result<(), String> {
    let ended = hear_all(stream, from, shared).await;
    shared.tell(Input::HungUp(from));
    ended
}

async fn hear_all(stream: TcpStream, from: NodeId, shared: &Shared) -> Result<(), String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
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
