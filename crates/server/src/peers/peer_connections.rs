//! One outgoing connection to each other node. The loop writes to the socket itself: waking a task
//! for it would cost more than the write. A task maintains the connection, and sends what the
//! socket did not take immediately.

use super::Shared;
use super::connection::NoConnection;
use super::handshake::Purpose;
use super::peer_activity::PeerActivity;
use crate::engine::{Post, StopReason};
use crate::stream::Stream;
use holdfast_node::{FRAME_BYTES_MAX, Input, NodeId, PeerMessage};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Bytes queued for one node. Anything beyond is lost, as on any network: Raft sends it again.
const UNSENT_BYTES_MAX: usize = 4 * FRAME_BYTES_MAX;

/// A buffer that has grown beyond this is shrunk.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// How long until a node that could not be reached is retried: the first delay, and the longest.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(250);

/// A node that accepts nothing for this long is not reading: a new connection may help.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// A node that was sent something and has been silent for this long may no longer be reachable over
/// this connection, although the kernel does not know: a firewall may have dropped its state. A
/// healthy node sends ten messages a second.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// How often the task checks for silence.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(super) struct PeerConnections {
    shared: Arc<Shared>,
    runtime: runtime::Handle,
    ends: BTreeMap<NodeId, Sender>,
}

impl PeerConnections {
    pub(super) fn new(shared: Arc<Shared>, runtime: runtime::Handle) -> Self {
        Self { shared, runtime, ends: BTreeMap::new() }
    }

    /// Queues a message for the next [`PeerConnections::flush`].
    pub(super) fn send(&mut self, to: NodeId, message: &PeerMessage) {
        let end = self.end_to(to);
        end.frames = push_frame(std::mem::take(&mut end.frames), message);
    }

    /// Sends everything queued in this turn.
    pub(super) fn flush(&mut self) {
        for (to, end) in &mut self.ends {
            if !end.frames.is_empty() && !end.line.send_frames(&end.frames) {
                self.shared.notify_node(Input::Unreachable(*to));
            }
            end.frames.clear();
            end.frames.shrink_to(KEPT_BYTES_MAX);
        }
    }

    /// Keeps a connection to exactly these nodes, before there is anything to send: an election is
    /// no time for handshakes.
    pub(super) fn keep(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        let nodes: BTreeSet<NodeId> = nodes.into_iter().collect();
        self.ends.retain(|id, _| nodes.contains(id));
        for node in nodes {
            self.end_to(node);
        }
    }

    fn end_to(&mut self, to: NodeId) -> &mut Sender {
        self.ends.entry(to).or_insert_with(|| {
            let line = Arc::<PeerConnection>::default();
            let keeper = ConnectionTask { shared: self.shared.clone(), to, line: line.clone() };
            self.runtime.spawn(keeper.run());
            Sender { line, frames: Vec::new() }
        })
    }
}

/// The loop's side of a connection.
struct Sender {
    line: Arc<PeerConnection>,
    /// The frames of this turn.
    frames: Vec<u8>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The last message to a removed node tells it that it was removed.
        self.line.send_frames(&self.frames);
        self.line.state().closed = true;
        self.line.bell.notify_one();
    }
}

/// The state that the loop and the task share.
#[derive(Default)]
struct PeerConnection {
    state: Mutex<ConnectionState>,
    /// There is unsent data, or the line is closed.
    bell: Notify,
}

#[derive(Default)]
struct ConnectionState {
    stream: Option<Arc<Stream>>,
    /// Queued frames; while connected, the first may have been sent in part.
    unsent: Vec<u8>,
    /// Since when messages have gone unanswered, as of the task's last check.
    unanswered: Option<Instant>,
    closed: bool,
}

impl PeerConnection {
    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        // No code panics while holding the lock, and the content would still be consistent if one
        // did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends or queues frames; returns false if they were dropped.
    fn send_frames(&self, frames: &[u8]) -> bool {
        let mut state = self.state();
        if !frames.is_empty() {
            state.unanswered.get_or_insert_with(Instant::now);
        }
        let mut rest = frames;
        if let (true, Some(stream)) = (state.unsent.is_empty(), &state.stream) {
            // A failed connection is left to the task.
            let sent = stream.try_write(frames).unwrap_or(0);
            rest = frames.get(sent..).unwrap_or_default();
        }
        let begun = rest.len() < frames.len();
        if !begun && state.unsent.len() + rest.len() > UNSENT_BYTES_MAX {
            return false;
        }
        let encrypted = state.stream.as_ref().is_some_and(|stream| stream.has_unsent());
        state.unsent.extend_from_slice(rest);
        if encrypted || !rest.is_empty() {
            self.bell.notify_one();
        }
        true
    }

    /// Whether the other node has been silent for too long.
    fn is_unanswered(&self, peer_activity: &PeerActivity) -> bool {
        let mut state = self.state();
        let Some(since) = state.unanswered else { return false };
        if peer_activity.since(since) {
            state.unanswered = None;
        }
        state.unanswered.is_some_and(|since| since.elapsed() >= SILENCE_MAX)
    }

    /// Sends some of what is queued; returns false once nothing is left.
    fn send_queued(&self, stream: &Stream) -> Result<bool, String> {
        let mut state = self.state();
        if !state.unsent.is_empty() {
            match stream.try_write(&state.unsent) {
                Ok(0) => return Err("it closed the connection".to_owned()),
                Ok(count) => drop(state.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        if state.unsent.is_empty() {
            state.unsent.shrink_to(KEPT_BYTES_MAX);
        }
        Ok(!state.unsent.is_empty())
    }
}

/// The task that maintains a connection.
struct ConnectionTask {
    shared: Arc<Shared>,
    to: NodeId,
    line: Arc<PeerConnection>,
}

impl ConnectionTask {
    /// Runs until the loop drops its end.
    async fn run(self) {
        let mut retry = RETRY_FIRST;
        let mut complaint = String::new();
        self.shared.begun().await;
        // Kept until there is a new one: its closing would tell the other side that this node has
        // stopped.
        let mut silent = None;
        while !self.line.state().closed {
            let dialed = self.shared.dial(self.to, Purpose::Messages).await;
            drop(silent.take());
            match dialed {
                Ok((stream, alive)) => {
                    tracing::info!("connected to node {}", self.to);
                    (retry, complaint) = (RETRY_FIRST, String::new());
                    let stream = Arc::new(stream);
                    {
                        let mut state = self.line.state();
                        (state.stream, state.unanswered) = (Some(stream.clone()), None);
                    }
                    let ended = tokio::select! {
                        ended = self.talk(&stream) => ended,
                        () = alive.replaced() => Err("it was restarted".to_owned()),
                    };
                    if let Err(why) = ended {
                        tracing::info!("lost the connection to node {}: {why}", self.to);
                    }
                    self.line.state().stream = None;
                    silent = Some(stream);
                }
                Err(NoConnection::Because(why)) => {
                    if why != complaint {
                        tracing::warn!("no connection to node {}: {why}", self.to);
                        complaint = why;
                    }
                }
                Err(for_good) => {
                    // The error says what to do. Rejoining is not an option: it would remove the id
                    // of a running node.
                    let end = StopReason::Lost { why: for_good.to_string(), may_rejoin: false };
                    self.shared.inbox.post_always(Post::Stop(end));
                    return;
                }
            }
            self.shared.notify_node(Input::Unreachable(self.to));
            sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
            // What was queued meanwhile is stale.
            self.line.state().unsent = Vec::new();
        }
    }

    /// Sends what is queued whenever there is something, until the line is closed or the connection
    /// fails.
    async fn talk(&self, stream: &Stream) -> Result<(), String> {
        let peer_activity = self.shared.peer_activity(self.to);
        let since = Instant::now();
        loop {
            while self.line.send_queued(stream)? {
                let writable = timeout(WRITE_TIMEOUT, stream.writable()).await;
                writable.map_err(|_| "it does not read".to_owned())?.map_err(|e| e.to_string())?;
            }
            if self.line.state().closed {
                return Ok(());
            }
            tokio::select! {
                () = self.line.bell.notified() => {}
                () = hung_up(stream) => return Err("it closed the connection".to_owned()),
                // If our connection is new as well, it was made for the same reason.
                () = peer_activity.wait_reconnected() => {
                    if since.elapsed() >= SILENCE_MAX {
                        return Err("it has reconnected".to_owned());
                    }
                }
                () = sleep(LOOK_EVERY) => {}
            }
            if self.line.is_unanswered(&peer_activity) {
                return Err("it is silent".to_owned());
            }
        }
    }
}

/// Resolves when the other side closes the connection, on which it never sends anything.
async fn hung_up(stream: &Stream) {
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Appends a message with its length prefix. One that is too long is left out: it would be refused.
fn push_frame(mut bytes: Vec<u8>, message: &PeerMessage) -> Vec<u8> {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    bytes = message.encode(bytes);
    let length = bytes.len().saturating_sub(start + 4);
    match (bytes.get_mut(start..start + 4), u32::try_from(length)) {
        (Some(head), Ok(value)) if length <= FRAME_BYTES_MAX => {
            head.copy_from_slice(&value.to_le_bytes());
        }
        _ => {
            tracing::error!("a message of {length} bytes is too long to be sent");
            bytes.truncate(start);
        }
    }
    bytes
}
