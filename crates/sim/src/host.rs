//! One simulated machine: a node, its disk, and what a real driver would do around them.

use crate::client::Sent;
use crate::rng::Rng;
use crate::world::DoorWait;
use holdfast_core::{Grant, Label, Limits, Secret, SessionRef, Token};
use holdfast_node::{
    Ask, Boot, Change, Cluster, Config, Input, Member, Moment, Node, NodeDisk, NodeId, Output,
    Persist, RaftMessage, SnapshotTask, load, read_snapshot, write_snapshot,
};
use holdfast_sim_disk::SimDisk;
use holdfast_storage::{Fault, Options, SnapshotWriter, WriteError};
use std::collections::{BTreeMap, VecDeque};

/// Small, so that snapshots and new segments happen within minutes.
const SNAPSHOT_EVERY_BYTES: usize = 24 * 1024;
const SEGMENT_BYTES: usize = 16 * 1024;

/// One step a command, so that a dead session's tickets are ended over several entries.
const LIMITS: Limits = Limits { steps_max: 1, ..Limits::DEFAULT };

/// Who waits for a reply.
#[derive(Debug, Clone)]
pub(crate) enum Asker {
    Client {
        client: usize,
        attempt: u64,
        floor: u64,
    },
    /// The first or second of two that were sent together.
    Pair {
        client: usize,
        pair: u64,
        second: bool,
    },
    Beat {
        client: usize,
        session: SessionRef,
        sent_us: u64,
    },
    /// A read beside everything else; the highest token told when it was sent.
    Look {
        floor: u64,
    },
    /// A heartbeat of somebody who does not know the session's secret.
    WrongBeat,
    /// Something that is asked once, and perhaps withdrawn. Its label is its own.
    Once(Label),
    Operator(Change),
    /// A caller without a session.
    Door {
        wait: DoorWait,
        sent_us: u64,
    },
    /// The driver, for a grant that such a caller waits for.
    Confirm {
        grant: Box<Grant>,
        sent_us: u64,
    },
    Nobody,
}

pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) disk: SimDisk,
    pub(crate) node: Option<Node>,
    files: Option<NodeDisk<SimDisk>>,
    /// Counts starts: what belonged to an earlier one is void.
    pub(crate) epoch: u64,
    /// Its clock runs so many parts in a thousand of the true one.
    pub(crate) rate: u64,
    pub(crate) paused_until_us: u64,
    pub(crate) slow_until_us: u64,
    pub(crate) inputs: Vec<Input>,
    pub(crate) turn_at_us: Option<u64>,
    asks: BTreeMap<Ask, Asker>,
    next_ask: u64,
    /// Callers without a session who wait here.
    pub(crate) door_waits: BTreeMap<Token, DoorWait>,
    to_persist: VecDeque<Persist>,
    pub(crate) persisting: Option<u64>,
    /// The node was told that the disk is full, and it has not been told otherwise.
    full: bool,
    /// A write that found no room is about to be tried again.
    pub(crate) retrying: bool,
    /// What ended the use of the disk: the process must stop.
    pub(crate) broken: Option<WriteError>,
    /// A sync is going to fail, so that a broken disk is no surprise.
    pub(crate) sync_fails: bool,
    pub(crate) snapshot: Option<Box<SnapshotTask>>,
    /// Where a bit was flipped at rest.
    pub(crate) flipped: Option<String>,
    /// Nothing of it can be trusted any more.
    pub(crate) damaged: bool,
    pub(crate) removed: bool,
}

/// What came of handing something to the disk.
pub(crate) enum Written {
    Nothing,
    /// It is written and waits for its sync.
    Something,
    /// The same is to be tried again.
    NoRoom,
}

/// A snapshot on its way to another node.
pub(crate) struct Parcel {
    pub(crate) message: RaftMessage,
    at: holdfast_storage::Position,
    meta: Vec<u8>,
    pieces: Vec<Vec<u8>>,
}

impl Host {
    /// A machine with an empty disk; `begin` makes it a first member of a cluster.
    pub(crate) fn new(id: NodeId, begin: Option<&Cluster>, rng: &mut Rng) -> Self {
        let disk = SimDisk::new();
        if let Some(cluster) = begin
            && let Err(error) = NodeDisk::begin(&disk, cluster)
        {
            panic!("an empty disk takes a first snapshot: {error}");
        }
        Self {
            id,
            disk,
            node: None,
            files: None,
            epoch: 0,
            rate: rng.range(995, 1_006),
            paused_until_us: 0,
            slow_until_us: 0,
            inputs: Vec::new(),
            turn_at_us: None,
            asks: BTreeMap::new(),
            next_ask: 0,
            door_waits: BTreeMap::new(),
            to_persist: VecDeque::new(),
            persisting: None,
            full: false,
            retrying: false,
            broken: None,
            sync_fails: false,
            snapshot: None,
            flipped: None,
            damaged: false,
            removed: false,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.node.is_some()
    }

    /// How it stands, for the reader of a failure.
    pub(crate) fn standing(&self) -> String {
        let id = self.id;
        let Some(node) = &self.node else {
            let (damaged, removed) = (self.damaged, self.removed);
            return format!("node {id} is down, damaged: {damaged}, removed: {removed}");
        };
        let (term, leader, at) = (node.term(), node.leader(), node.applied().index);
        let member = |(id, member): (&NodeId, &Member)| (id.0, member.votes);
        let members: Vec<(u64, bool)> = node.cluster().members().iter().map(member).collect();
        let (unwritten, syncing) = (self.to_persist.len(), self.persisting);
        format!(
            "node {id} is in term {term} at entry {at}, knows leader {leader:?} and members \
             {members:?}; unwritten {unwritten}, syncing {syncing:?}"
        )
    }

    pub(crate) fn moment(&self, now_us: u64) -> Moment {
        Moment { mono_ms: now_us * self.rate / 1_000_000, wall_ms: now_us / 1_000 }
    }

    /// Starts the node from what is on disk.
    pub(crate) fn start(&mut self, rng: &mut Rng) -> Result<(), Fault> {
        let options = Options {
            segment_bytes: SEGMENT_BYTES,
            zero_ahead_bytes: 4_096,
            salt: rng.next(),
            must_exist: false,
        };
        let (files, boot) = match NodeDisk::open(&self.disk, options, LIMITS, rng.next()) {
            Ok(opened) => opened,
            Err(fault) => {
                self.damaged = fault.is_damage();
                return Err(fault);
            }
        };
        self.boot(files, boot, rng);
        Ok(())
    }

    fn boot(&mut self, files: NodeDisk<SimDisk>, boot: Boot, rng: &mut Rng) {
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&rng.next().to_le_bytes());
        let config = Config {
            id: self.id,
            birth: files.birth(),
            rng_key: rng.next(),
            secret: Secret(secret),
            nonce: rng.next(),
            snapshot_every_bytes: SNAPSHOT_EVERY_BYTES,
        };
        match Node::new(config, boot) {
            Ok(node) => self.node = Some(node),
            Err(why) => panic!("node {} does not start: {why}", self.id),
        }
        self.files = Some(files);
        self.epoch += 1;
    }

    /// Power fails, or only the process ends.
    pub(crate) fn crash(&mut self, power: bool, rng: &mut Rng) {
        self.node = None;
        self.files = None;
        self.inputs.clear();
        self.asks.clear();
        self.door_waits.clear();
        self.to_persist.clear();
        self.persisting = None;
        self.full = false;
        self.retrying = false;
        self.broken = None;
        self.snapshot = None;
        self.turn_at_us = None;
        self.epoch += 1;
        if power {
            let mut state = rng.next();
            self.disk.crash(&mut state);
        } else {
            self.disk.end_process();
        }
    }

    pub(crate) fn ask(&mut self, asker: Asker, sent: Sent) -> Ask {
        self.next_ask += 1;
        let ask = Ask(self.next_ask);
        self.inputs.push(match sent {
            Sent::Ask { request, command } => Input::Ask { ask, request, command },
            Sent::Beat(session) | Sent::WrongBeat(session) => Input::Beat { ask, session },
            Sent::Read | Sent::Look => Input::Read(ask),
            Sent::Once { command, .. } | Sent::Door { command, .. } => {
                Input::Ask { ask, request: None, command: *command }
            }
            // A pair is two asks; the world takes it apart.
            Sent::Pair { .. } => return ask,
        });
        self.asks.insert(ask, asker);
        ask
    }

    pub(crate) fn change(&mut self, change: Change) {
        self.next_ask += 1;
        let ask = Ask(self.next_ask);
        self.asks.insert(ask, Asker::Operator(change.clone()));
        self.inputs.push(Input::Change { ask, change, force: false });
    }

    pub(crate) fn asker(&mut self, ask: Ask) -> Option<Asker> {
        self.asks.remove(&ask)
    }

    pub(crate) fn turn(&mut self, now_us: u64) -> Vec<Output> {
        let moment = self.moment(now_us);
        let inputs = std::mem::take(&mut self.inputs);
        let mut out = Vec::new();
        if let Some(node) = &mut self.node {
            node.turn(moment, inputs, &mut out);
        }
        out
    }

    /// Hands something to the disk; true if it was idle and begins now.
    pub(crate) fn persist(&mut self, persist: Persist) -> bool {
        self.to_persist.push_back(persist);
        self.persisting.is_none()
    }

    /// Writes what waits, as far as there is room; what is written is not yet durable.
    pub(crate) fn begin_persist(&mut self) -> Written {
        let Some(files) = self.files.as_mut().filter(|_| self.persisting.is_none()) else {
            return Written::Nothing;
        };
        while let Some(persist) = self.to_persist.front() {
            match files.write(persist) {
                Ok(()) => {
                    self.persisting = Some(persist.number);
                    self.to_persist.pop_front();
                    if std::mem::take(&mut self.full) {
                        self.inputs.push(Input::DiskFull(false));
                    }
                }
                Err(WriteError::Full { .. }) => {
                    if !std::mem::replace(&mut self.full, true) {
                        self.inputs.push(Input::DiskFull(true));
                    }
                    break;
                }
                Err(error) => {
                    self.broken = Some(error);
                    return Written::Nothing;
                }
            }
        }
        match (self.persisting, self.full) {
            (Some(_), _) => Written::Something,
            (None, true) => Written::NoRoom,
            (None, false) => Written::Nothing,
        }
    }

    pub(crate) fn end_persist(&mut self) {
        let synced = self.files.as_mut().map_or(Ok(()), NodeDisk::sync);
        let persisted = self.persisting.take();
        if self.note(synced.map_err(WriteError::Fault)) {
            self.inputs.extend(persisted.map(Input::Persisted));
        }
    }

    /// What the log says when it has been quiet for a while.
    pub(crate) fn vouch(&mut self) {
        if self.persisting.is_none()
            && let Some(files) = &mut self.files
        {
            let vouched = files.vouch();
            self.note(vouched.map_err(WriteError::Fault));
        }
    }

    pub(crate) fn compact(&mut self, at: holdfast_node::Position) {
        if let Some(files) = &mut self.files {
            let compacted = files.compact(at);
            self.note(compacted);
        }
    }

    /// Whether something was done. What was not for lack of room comes again by itself; after
    /// anything else the disk is not to be used any more.
    fn note(&mut self, done: Result<(), WriteError>) -> bool {
        match done {
            Ok(()) => true,
            Err(WriteError::Full { .. }) => false,
            Err(error) => {
                self.broken = Some(error);
                false
            }
        }
    }

    pub(crate) fn write_snapshot(&mut self) {
        let Some(task) = self.snapshot.take() else { return };
        let written = write_snapshot(&self.disk, &task);
        let input = if self.note(written) {
            Input::SnapshotWritten(task.at)
        } else {
            Input::SnapshotNotWritten
        };
        self.inputs.push(input);
    }

    /// The last snapshot, if it is the one that the message offers.
    pub(crate) fn parcel(&self, message: RaftMessage) -> Option<Parcel> {
        let reader = read_snapshot(&self.disk).ok()??;
        let at = reader.position();
        let offered = message.snapshot_at()?;
        let pieces = reader.pieces().collect::<Result<Vec<_>, _>>().ok()?;
        let same = (at.index, at.term) == (offered.index, offered.term);
        same.then(|| Parcel { message, at, meta: reader.meta().to_vec(), pieces })
    }

    /// Writes a snapshot that came in and hands it to the node.
    pub(crate) fn receive(&mut self, parcel: Parcel, rng: &mut Rng) -> bool {
        if self.node.is_none() || self.snapshot.is_some() {
            return false;
        }
        // One that is as new may be here already: Raft ignored it when it came.
        let newer =
            read_snapshot(&self.disk).ok().flatten().is_some_and(|r| r.position() >= parcel.at);
        let unpacked = if newer { Ok(()) } else { self.unpack(&parcel) };
        if !self.note(unpacked) {
            return false;
        }
        let read = read_snapshot(&self.disk).ok().flatten();
        let Some(loaded) = read.and_then(|reader| load(&reader, LIMITS, rng.next()).ok()) else {
            return false;
        };
        let loaded = Box::new(loaded);
        self.inputs.push(Input::SnapshotReceived { message: parcel.message, loaded });
        true
    }

    fn unpack(&self, parcel: &Parcel) -> Result<(), WriteError> {
        let mut writer = SnapshotWriter::begin(&self.disk, parcel.at, &parcel.meta)?;
        for (piece, number) in parcel.pieces.iter().zip(0..) {
            if let Err(error) = writer.piece(number, piece) {
                writer.abandon()?;
                return Err(error);
            }
        }
        writer.finish()
    }
}
