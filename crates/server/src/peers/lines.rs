//! One line to each other node. The loop writes to it by itself: to wake somebody for it would cost
//! more than the write. A task keeps the connection, and sends what the socket did not take at once.

use super::Shared;
use super::connection::NoConnection;
use super::heard::Heard;
use super::hello::Purpose;
use crate::engine::{End, Post};
use holdfast_node::{FRAME_BYTES_MAX, Input, NodeId, PeerMessage};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Bytes in line to one node. What comes beyond is lost, as on any network: Raft sends again.
const UNSENT_BYTES_MAX: usize = 4 * FRAME_BYTES_MAX;

/// A buffer that grew beyond this is given back.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// How long until a node that could not be reached is tried again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(250);

/// A node that takes nothing for longer does not read: a new connection may help.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// A node that was told something and says nothing for so long may not be reached by this connection
/// any more, although the system does not know it: a firewall may have forgotten it. A node that
/// serves is heard ten times a second.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// How often the task looks for that.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(super) struct Lines {
    shared: Arc<Shared>,
    runtime: runtime::Handle,
    ends: BTreeMap<NodeId, LineEnd>,
}

impl Lines {
    pub(super) fn new(shared: Arc<Shared>, runtime: runtime::Handle) -> Self {
        Self { shared, runtime, ends: BTreeMap::new() }
    }

    /// Says something with the next [`Lines::flush`].
    pub(super) fn send(&mut self, to: NodeId, message: &PeerMessage) {
        let end = self.end_to(to);
        end.said = push_frame(std::mem::take(&mut end.said), message);
    }

    /// Sends what was said.
    pub(super) fn flush(&mut self) {
        for (to, end) in &mut self.ends {
            if !end.said.is_empty() && !end.line.say(&end.said) {
                self.shared.tell(Input::Unreachable(*to));
            }
            end.said.clear();
            end.said.shrink_to(KEPT_BYTES_MAX);
        }
    }

    /// A line to each of these, before there is anything to say: an election is no time for
    /// getting to know each other.
    pub(super) fn keep(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        let nodes: BTreeSet<NodeId> = nodes.into_iter().collect();
        self.ends.retain(|id, _| nodes.contains(id));
        for node in nodes {
            self.end_to(node);
        }
    }

    fn end_to(&mut self, to: NodeId) -> &mut LineEnd {
        self.ends.entry(to).or_insert_with(|| {
            let line = Arc::<Line>::default();
            let keeper = Keeper { shared: self.shared.clone(), to, line: line.clone() };
            self.runtime.spawn(keeper.run());
            LineEnd { line, said: Vec::new() }
        })
    }
}

/// The loop's end of a line.
struct LineEnd {
    line: Arc<Line>,
    /// Frames of this turn.
    said: Vec<u8>,
}

impl Drop for LineEnd {
    fn drop(&mut self) {
        // The last word to a node that was removed: that it was.
        self.line.say(&self.said);
        self.line.state().closed = true;
        self.line.bell.notify_one();
    }
}

/// What the loop and the task share.
#[derive(Default)]
struct Line {
    state: Mutex<LineState>,
    /// There is something unsent, or the line is closed.
    bell: Notify,
}

#[derive(Default)]
struct LineState {
    stream: Option<Arc<TcpStream>>,
    /// Frames in line; with a connection, the first of them may have been begun.
    unsent: Vec<u8>,
    /// Since when something was said and nothing heard, as far as the task has looked.
    unanswered: Option<Instant>,
    closed: bool,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, LineState> {
        // Nobody panics while holding it; if somebody did, what is in it is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends frames, or puts them in line; false if they are lost.
    fn say(&self, frames: &[u8]) -> bool {
        let mut state = self.state();
        if !frames.is_empty() {
            state.unanswered.get_or_insert_with(Instant::now);
        }
        let mut rest = frames;
        if let (true, Some(stream)) = (state.unsent.is_empty(), &state.stream) {
            // A connection that has failed is the task's business.
            let sent = stream.try_write(frames).unwrap_or(0);
            rest = frames.get(sent..).unwrap_or_default();
        }
        let begun = rest.len() < frames.len();
        if !begun && state.unsent.len() + rest.len() > UNSENT_BYTES_MAX {
            return false;
        }
        if !rest.is_empty() {
            state.unsent.extend_from_slice(rest);
            self.bell.notify_one();
        }
        true
    }

    /// Whether the other side has been silent for too long.
    fn is_unanswered(&self, heard: &Heard) -> bool {
        let mut state = self.state();
        let Some(since) = state.unanswered else { return false };
        if heard.since(since) {
            state.unanswered = None;
        }
        state.unanswered.is_some_and(|since| since.elapsed() >= SILENCE_MAX)
    }

    /// Sends some of what is in line; false if that is all.
    fn say_more(&self, stream: &TcpStream) -> Result<bool, String> {
        let mut state = self.state();
        if !state.unsent.is_empty() {
            match stream.try_write(&state.unsent) {
                Ok(0) => return Err("it hung up".to_owned()),
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

/// The task that keeps a line's connection.
struct Keeper {
    shared: Arc<Shared>,
    to: NodeId,
    line: Arc<Line>,
}

impl Keeper {
    /// Until the loop drops its end.
    async fn run(self) {
        let mut retry = RETRY_FIRST;
        let mut complaint = String::new();
        self.shared.begun().await;
        // Kept until there is another one: that it ends would mean that this node has stopped.
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
                        () = alive.replaced() => Err("it was started again".to_owned()),
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
                    // It says itself what to do. To rejoin is no way: that would remove the id of a
                    // node that runs.
                    let end = End::Lost { why: for_good.to_string(), may_rejoin: false };
                    self.shared.inbox.post_always(Post::Stop(end));
                    return;
                }
            }
            self.shared.tell(Input::Unreachable(self.to));
            sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
            // What was said meanwhile is old by now.
            self.line.state().unsent = Vec::new();
        }
    }

    /// Sends what is in line whenever there is something, until the line or the connection ends.
    async fn talk(&self, stream: &TcpStream) -> Result<(), String> {
        let heard = self.shared.heard(self.to);
        let since = Instant::now();
        loop {
            while self.line.say_more(stream)? {
                let writable = timeout(WRITE_PATIENCE, stream.writable()).await;
                writable.map_err(|_| "it does not read".to_owned())?.map_err(|e| e.to_string())?;
            }
            if self.line.state().closed {
                return Ok(());
            }
            tokio::select! {
                () = self.line.bell.notified() => {}
                () = hung_up(stream) => return Err("it hung up".to_owned()),
                // A connection that is new itself was made for the same reason.
                () = heard.dials_anew() => {
                    if since.elapsed() >= SILENCE_MAX {
                        return Err("it has dialed anew".to_owned());
                    }
                }
                () = sleep(LOOK_EVERY) => {}
            }
            if self.line.is_unanswered(&heard) {
                return Err("it says nothing".to_owned());
            }
        }
    }
}

/// Nothing is ever said on this connection in return: it only ends.
async fn hung_up(stream: &TcpStream) {
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Appends a message with its length; one that is too long is left out: it would be refused.
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
