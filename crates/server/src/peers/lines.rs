//! One line to each other node: a queue, and a task that keeps a connection and empties it.

use super::Shared;
use super::connection::NoConnection;
use super::hello::Purpose;
use crate::engine::{End, Post};
use holdfast_node::{FRAME_BYTES_MAX, Input, NodeId, PeerMessage};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

/// Messages in line to one node. What comes beyond is lost, as on any network: Raft sends again.
const QUEUE_MAX: usize = 1_024;

/// Messages that go out in one write.
const TOGETHER_MAX: usize = 64;

/// How long until a node that could not be reached is tried again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// A write that takes longer goes nowhere: a new connection may.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Lines {
    shared: Arc<Shared>,
    runtime: runtime::Handle,
    queues: BTreeMap<NodeId, Sender<PeerMessage>>,
}

impl Lines {
    pub(super) fn new(shared: Arc<Shared>, runtime: runtime::Handle) -> Self {
        Self { shared, runtime, queues: BTreeMap::new() }
    }

    pub(super) fn send(&mut self, to: NodeId, message: PeerMessage) {
        if self.line_to(to).try_send(message).is_err() {
            self.shared.tell(Input::Unreachable(to));
        }
    }

    /// A line to each of these, before there is anything to say: an election is no time for
    /// getting to know each other.
    pub(super) fn keep(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        let nodes: BTreeSet<NodeId> = nodes.into_iter().collect();
        self.queues.retain(|id, _| nodes.contains(id));
        for node in nodes {
            self.line_to(node);
        }
    }

    fn line_to(&mut self, to: NodeId) -> &Sender<PeerMessage> {
        self.queues.entry(to).or_insert_with(|| {
            let (queue, messages) = channel(QUEUE_MAX);
            self.runtime.spawn(Line { shared: self.shared.clone(), to, messages }.run());
            queue
        })
    }
}

struct Line {
    shared: Arc<Shared>,
    to: NodeId,
    messages: Receiver<PeerMessage>,
}

impl Line {
    /// Until the loop drops the queue.
    async fn run(mut self) {
        let mut batch = Vec::new();
        let mut retry = RETRY_FIRST;
        let mut complaint = String::new();
        while !self.messages.is_closed() {
            match self.shared.dial(self.to, Purpose::Messages).await {
                Ok(stream) => {
                    tracing::info!("connected to node {}", self.to);
                    (retry, complaint) = (RETRY_FIRST, String::new());
                    if let Err(why) = self.talk(stream, &mut batch).await {
                        tracing::info!("lost the connection to node {}: {why}", self.to);
                    }
                }
                Err(refused @ (NoConnection::Removed | NoConnection::Reborn)) => {
                    self.shared.inbox.post_always(Post::Stop(End::Fault(refused.to_string())));
                    return;
                }
                Err(NoConnection::Because(why)) => {
                    if why != complaint {
                        tracing::warn!("no connection to node {}: {why}", self.to);
                        complaint = why;
                    }
                }
            }
            self.shared.tell(Input::Unreachable(self.to));
            sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
            // What was said meanwhile is old by now.
            batch.clear();
            while self.messages.try_recv().is_ok() {}
        }
    }

    async fn talk(
        &mut self,
        mut stream: TcpStream,
        batch: &mut Vec<PeerMessage>,
    ) -> Result<(), String> {
        let (mut reader, mut writer) = stream.split();
        let mut bytes = Vec::new();
        loop {
            for message in batch.drain(..) {
                bytes = push_frame(bytes, &message);
            }
            let written = timeout(WRITE_PATIENCE, writer.write_all(&bytes)).await;
            written.map_err(|_| "it does not read".to_owned())?.map_err(|e| e.to_string())?;
            bytes.clear();
            tokio::select! {
                count = self.messages.recv_many(batch, TOGETHER_MAX) => {
                    if count == 0 {
                        return Ok(());
                    }
                }
                // Nothing is ever said on this connection in return: it only ends.
                _ = reader.read_u8() => return Err("it hung up".to_owned()),
            }
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
