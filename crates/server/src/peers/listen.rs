//! Incoming connections from other nodes.

use super::Shared;
use super::connection::{accept, answer, read_frame_into};
use super::founding::{founding_clash, second_cluster, waiting_for};
use super::handshake::{Hello, Purpose, Verdict};
use super::members::{self, Membership};
use super::peer_activity::PeerActivity;
use super::runs::{Alive, Impostor};
use super::snapshot_transfer;
use super::throttle::{SUMMARY_EVERY, Throttle};
use crate::activity::{Activity, IdleSet};
use crate::engine::{Post, StopReason};
use crate::sockets;
use crate::stream::Stream;
use crate::tls::Accepting;
use holdfast_node::{FRAME_BYTES_MAX, Input, NodeId, PeerMessage};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::TcpListener;
use tokio::time::{interval, sleep};

/// Connections that have not yet proved that they belong to the cluster, which bounds what a flood
/// of strangers can cost.
const STRANGERS_MAX: usize = 64;

const TOO_MANY: &str = "too many unidentified connections: the oldest is closed";

/// The size of the read buffer; larger frames bypass it.
const READ_BYTES: usize = 64 << 10;

/// Accepts connections until the task is dropped.
pub(crate) async fn listen(listener: TcpListener, shared: Arc<Shared>, membership: Membership) {
    let strangers = Arc::<IdleSet>::default();
    let throttle = Arc::<Throttle>::default();
    let mut summary = interval(SUMMARY_EVERY);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = summary.tick() => {
                let more = throttle.sum_up();
                if more > 0 {
                    tracing::warn!(
                        "{more} more messages like these about connections of peers in the last {} s",
                        SUMMARY_EVERY.as_secs()
                    );
                }
                continue;
            }
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most likely out of file descriptors, which will be freed again.
                let message = format!("can't accept a peer's connection: {error}");
                if throttle.admits(&message) {
                    tracing::warn!("{message}");
                }
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        sockets::prepare(&stream);
        if strangers.len() >= STRANGERS_MAX && strangers.evict_oldest() && throttle.admits(TOO_MANY)
        {
            tracing::warn!("{TOO_MANY}");
        }
        let stranger = strangers.enter();
        let stream = match &shared.credentials.tls {
            None => Ok(stream.into()),
            Some(tls) => tls.accept(stream, Accepting::Peer, b""),
        };
        let Ok(mut stream) = stream else { continue };
        let (shared, membership) = (shared.clone(), membership.clone());
        let throttle = throttle.clone();
        tokio::spawn(async move {
            match meet(&mut stream, &shared, &stranger).await {
                Ok(met) => serve(stream, met, shared, membership).await,
                Err(why) => {
                    if throttle.admits(&why) {
                        tracing::warn!("refused a peer's connection from {address}: {why}");
                    }
                }
            }
        });
    }
}

/// Runs the handshake with a dialer. Once it has proved that it belongs to the cluster, it no
/// longer counts as a stranger.
async fn meet(
    stream: &mut Stream,
    shared: &Shared,
    stranger: &Arc<Activity>,
) -> Result<AdmittedPeer, String> {
    let hello = tokio::select! {
        accepted = accept(stream, &shared.credentials.key) => accepted?,
        () = stranger.evicted() => return Err("it did not identify itself, and others came".to_owned()),
    };
    stranger.keep();
    let (verdict, alive) = judge(shared, &hello).await;
    // Counted before the other side can close an earlier connection.
    let number = match (&hello.from, hello.purpose, &alive) {
        (Some(from), Purpose::Messages, Some(_)) => shared.peer_activity(from.node).connected(),
        _ => 0,
    };
    answer(stream, &verdict).await.map(|()| AdmittedPeer { hello, alive, number })
}

/// A dialer that was let in.
struct AdmittedPeer {
    hello: Hello,
    alive: Option<Alive>,
    /// The number of this connection among the node's message connections; 0 for other purposes.
    number: u64,
}

async fn judge(shared: &Shared, hello: &Hello) -> (Verdict, Option<Alive>) {
    let me = shared.me.node;
    let refused = |why: String| (Verdict::Refused(why), None);
    let second = hello.from.as_ref().and_then(|from| second_cluster(shared, from));
    if let Some(why) = second {
        let end = StopReason::Lost { why: why.clone(), may_rejoin: false };
        shared.inbox.post_always(Post::Stop(end));
        return refused(why);
    }
    // First check that we are the node the dialer wants: only then is our verdict final for it.
    if let Some(to) = hello.to.filter(|to| *to != me) {
        return refused(format!("this is node {me}, not {to}"));
    }
    let asks = hello.purpose == Purpose::Members;
    let Some(from) = &hello.from else {
        if asks {
            return (Verdict::Welcome(shared.me.clone()), None);
        }
        return refused("only a member may do that".to_owned());
    };
    if from.node == me {
        return refused(format!("this is node {me} as well: each needs its own id"));
    }
    if shared.was_removed(from.node) {
        return (Verdict::Removed, None);
    }
    if shared.was_reborn(from.node, from.birth) {
        return (Verdict::Reborn, None);
    }
    if let Some(why) = founding_clash(shared, from) {
        return refused(why);
    }
    // Before the welcome: a node that all first members have welcomed may vote.
    match shared.note_folder(from).await {
        Ok(true) => {}
        Ok(false) => return (Verdict::Reborn, None),
        Err(why) => return refused(why),
    }
    if asks {
        let known = shared.is_superseded(from);
        let welcome = || Verdict::Welcome(shared.me.clone());
        return (if known { Verdict::Superseded } else { welcome() }, None);
    }
    let awaited = shared.known.awaited();
    if !awaited.is_empty() {
        return refused(waiting_for(&awaited));
    }
    let verdict = match shared.recognise(from, None).await {
        // It may have been removed just now: then nothing would end this connection any more.
        Ok(_) if shared.was_removed(from.node) => Verdict::Removed,
        Ok(alive) => return (Verdict::Welcome(shared.me.clone()), Some(alive)),
        Err(Impostor::AlreadyRuns(address)) => Verdict::AlreadyRuns(address),
        Err(Impostor::Superseded) => Verdict::Superseded,
        Err(Impostor::NotNow) => Verdict::Refused("try again".to_owned()),
    };
    (verdict, None)
}

async fn serve(stream: Stream, met: AdmittedPeer, shared: Arc<Shared>, membership: Membership) {
    let AdmittedPeer { hello, alive, number } = met;
    let from = hello.from.map(|from| {
        shared.met(from.node, from.contact);
        from.node
    });
    let ended = match (hello.purpose, from, alive) {
        (Purpose::Messages, Some(from), Some(alive)) => {
            receive_messages(stream, from, number, alive, &shared).await
        }
        (Purpose::Snapshot, Some(_), _) => snapshot_transfer::receive(stream, shared).await,
        (Purpose::Members, _, _) => members::answer(stream, &membership).await,
        (_, _, _) => Ok(()),
    };
    if let Err(why) = ended {
        tracing::debug!("a peer's connection ended: {why}");
    }
}

async fn receive_messages(
    stream: Stream,
    from: NodeId,
    number: u64,
    alive: Alive,
    shared: &Shared,
) -> Result<(), String> {
    let peer_activity = shared.peer_activity(from);
    let (ended, replaced) = tokio::select! {
        ended = receive_each(stream, from, &peer_activity, shared) => (ended, false),
        () = alive.replaced() => (Err("the node was restarted".to_owned()), true),
    };
    // A connection that the same process has already replaced by a new one means nothing.
    if replaced || peer_activity.is_latest(number) {
        shared.notify_node(Input::HungUp(from));
    }
    ended
}

async fn receive_each(
    stream: Stream,
    from: NodeId,
    peer_activity: &PeerActivity,
    shared: &Shared,
) -> Result<(), String> {
    let mut stream = BufReader::with_capacity(READ_BYTES, stream);
    let mut frame = Vec::new();
    loop {
        read_frame_into(&mut stream, FRAME_BYTES_MAX, &mut frame).await?;
        peer_activity.note();
        let Some(message) = PeerMessage::decode(&frame) else {
            return Err(format!(
                "node {from} sent a message that this version does not understand"
            ));
        };
        while shared.inbox.is_crowded() {
            sleep(Duration::from_millis(1)).await;
        }
        let post = Post::Node(Input::Peer { from, message });
        shared.inbox.post(post).map_err(|trouble| format!("{trouble:?}"))?;
    }
}
