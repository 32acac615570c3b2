//! Sends a snapshot to a lagging node, and receives one: a head, the pieces, and an end with the
//! checksum over all of it. Both run on threads that may block.

use super::Shared;
use super::handshake::Purpose;
use crate::engine::{NotTaken, Piece, Post, StopReason};
use crate::stream::{BlockingStream, Stream};
use holdfast_node::{Input, NodeId, RaftMessage};
use holdfast_storage::{PIECE_BYTES_MAX, Position};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;

/// A side that is silent for this long is gone. The receiver's sync and load fall into it too.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The longest frame: a piece and its kind byte, with some slack.
const FRAME_BYTES_MAX: usize = PIECE_BYTES_MAX + 16;

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    /// The Raft message that offers the snapshot: Raft expects the two together.
    message: RaftMessage,
    index: u64,
    term: u64,
    meta: Vec<u8>,
}

/// Frame kinds after the head: any number of `NEXT`, then one `END`.
const NEXT: u8 = 1;
const END: u8 = 2;

/// The receiver's reply at the end.
const ARRIVED: u8 = 1;

/// Sends the latest snapshot, and reports to the loop whether it arrived.
pub(super) async fn send(shared: Arc<Shared>, to: NodeId, message: RaftMessage) {
    let sent = match shared.dial(to, Purpose::Snapshot).await {
        Err(why) => Err(why.to_string()),
        Ok((stream, _)) => {
            let shared = shared.clone();
            let sent = spawn_blocking(move || send_all(stream, &shared, message));
            sent.await.unwrap_or_else(|_| Err("its thread is gone".to_owned()))
        }
    };
    match &sent {
        Ok(bytes) => tracing::info!("sent a snapshot of {bytes} bytes to node {to}"),
        Err(why) => tracing::warn!("could not send a snapshot to node {to}: {why}"),
    }
    shared.notify_node(Input::SnapshotSent { to, arrived: sent.is_ok() });
}

fn send_all(stream: Stream, shared: &Shared, message: RaftMessage) -> Result<u64, String> {
    let mut stream = blocking(stream)?;
    let reader = shared.snapshots.latest().map_err(|fault| fault.to_string())?;
    let reader = reader.ok_or("there is no snapshot")?;
    let at = reader.position();
    let offered = message.snapshot_at().map(|offered| (offered.index, offered.term));
    if offered != Some((at.index, at.term)) {
        return Err("a newer one has taken its place".to_owned());
    }
    let meta = reader.meta().to_vec();
    let head = Head { message, index: at.index, term: at.term, meta };
    let head = postcard::to_allocvec(&head).map_err(|error| error.to_string())?;
    write(&mut stream, &[&head])?;
    for piece in reader.pieces() {
        let piece = piece.map_err(|fault| fault.to_string())?;
        write(&mut stream, &[&[NEXT], &piece])?;
    }
    write(&mut stream, &[&[END], &reader.checksum().to_le_bytes()])?;
    let mut answer = [0];
    stream.read_exact(&mut answer).map_err(|error| error.to_string())?;
    if answer == [ARRIVED] { Ok(reader.pieces_bytes()) } else { Err("it was not taken".into()) }
}

/// Receives a snapshot, makes it durable and hands it to the loop.
pub(super) async fn receive(stream: Stream, shared: Arc<Shared>) -> Result<(), String> {
    let received = spawn_blocking(move || receive_all(stream, &shared));
    let received = received.await.unwrap_or_else(|_| Err("its thread is gone".to_owned()));
    if let Err(why) = &received {
        tracing::warn!("did not take a snapshot: {why}");
    }
    received
}

fn receive_all(stream: Stream, shared: &Shared) -> Result<(), String> {
    let mut stream = blocking(stream)?;
    let head: Head = postcard::from_bytes(&read(&mut stream)?).map_err(|e| e.to_string())?;
    let Head { message, index, term, meta } = head;
    let received = shared.snapshots.receive(Position { index, term }, &meta, || {
        let mut frame = read(&mut stream)?;
        match frame.split_first() {
            Some((&NEXT, _)) => {
                frame.remove(0);
                Ok(Piece::Next(frame))
            }
            Some((&END, checksum)) => {
                let checksum = <[u8; 4]>::try_from(checksum).map_err(|error| error.to_string())?;
                Ok(Piece::End { checksum: u32::from_le_bytes(checksum) })
            }
            _ => Err("an unknown piece".to_owned()),
        }
    });
    let loaded = received.map_err(|not_taken| match not_taken {
        NotTaken::Because(why) => why,
        NotTaken::Fault(fault) => {
            shared.inbox.post_always(Post::Stop(StopReason::Fault(fault.to_string())));
            fault.to_string()
        }
    })?;
    tracing::info!("took a snapshot of entry {index}");
    shared.notify_node(Input::SnapshotReceived { message, loaded: Box::new(loaded) });
    stream.write_all(&[ARRIVED]).map_err(|error| error.to_string())
}

fn blocking(stream: Stream) -> Result<BlockingStream, String> {
    stream.into_blocking(TIMEOUT).map_err(|error| error.to_string())
}

fn write(stream: &mut BlockingStream, parts: &[&[u8]]) -> Result<(), String> {
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    let length = u32::try_from(length).map_err(|error| error.to_string())?;
    let mut all = |bytes: &[u8]| stream.write_all(bytes).map_err(|error| error.to_string());
    all(&length.to_le_bytes())?;
    parts.iter().try_for_each(|part| all(part))
}

fn read(stream: &mut BlockingStream) -> Result<Vec<u8>, String> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(|error| error.to_string())?;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(format!("a frame of {length} bytes is too long"));
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).map_err(|error| error.to_string())?;
    Ok(frame)
}
