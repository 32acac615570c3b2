//! One simulated machine: a node with its gateway, its disk, and what a real driver would do around
//! them.

use crate::door::{DoorTask, Pending, Stream};
use crate::rng::Rng;
use crate::world::{Up, WireId};
use crate::zookeeper::Door;
use holdfast_core::{Limits, Secret};
use holdfast_gateway::{CallId, Driver, Gateway, Sink, SinkId};
use holdfast_node::{
    Boot, Change, Cluster, Config, Input, LEVEL, Member, Moment, Node, NodeDisk, NodeId, Output,
    Persist, RaftMessage, SnapshotTask, load, read_snapshot, write_snapshot,
};
use holdfast_redis::lua::Scripts;
use holdfast_sim_disk::SimDisk;
use holdfast_storage::{Fault, Options, SnapshotWriter, WriteError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Small, so that snapshots and new segments happen within minutes.
const SNAPSHOT_EVERY_BYTES: usize = 64 * 1024;
const SEGMENT_BYTES: usize = 16 * 1024;

/// One step a command, so that a dead session's tickets are ended over several entries.
pub(crate) const LIMITS: Limits = Limits { steps_max: 1, ..Limits::DEFAULT };

/// The gateway's driver: this simulator.
pub(crate) struct Virtual;

impl Driver for Virtual {
    type ReplyTo = CallId;
    type Sink = VirtualSink;
    type Task = DoorTask;
}

/// Where the events of one stream go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VirtualSink(pub(crate) u64);

impl Sink for VirtualSink {
    fn id(&self) -> SinkId {
        SinkId(self.0)
    }
}

pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) disk: SimDisk,
    pub(crate) node: Option<Node>,
    files: Option<NodeDisk<SimDisk>>,
    /// Counts starts: what belonged to an earlier one is void.
    pub(crate) epoch: u64,
    /// The highest behaviour level that its program supports.
    pub(crate) level: u16,
    /// Its clock runs so many parts in a thousand of the true one.
    pub(crate) rate: u64,
    pub(crate) paused_until_us: u64,
    pub(crate) slow_until_us: u64,
    /// How long a write takes at most while the disk is slow.
    pub(crate) slow_us_max: u64,
    /// Until then its turns take time.
    pub(crate) busy_until_us: u64,
    pub(crate) inputs: Vec<Input>,
    /// When its next turn is, and the number of that event.
    pub(crate) turn: Option<(u64, u64)>,
    pub(crate) gateway: Gateway<Virtual>,
    /// What has arrived over connections since the last turn.
    pub(crate) inbox: Vec<(WireId, Up)>,
    pub(crate) streams: BTreeMap<VirtualSink, Stream>,
    pub(crate) calls: BTreeMap<CallId, Pending>,
    pub(crate) next_id: u64,
    /// Scripts that its Redis door has seen.
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) zookeeper: Door,
    /// What the operator wants changed.
    pub(crate) changes: Vec<Change>,
    /// Its machine has lost its power: it says nothing, not even that nobody is there.
    pub(crate) dark: bool,
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
pub(crate) struct SnapshotInTransit {
    pub(crate) message: RaftMessage,
    at: holdfast_storage::Position,
    meta: Vec<u8>,
    pieces: Vec<Vec<u8>>,
}

impl Host {
    /// A machine with an empty disk; `begin` makes it a first member of a cluster, with the program
    /// that began it. Later members have the newest program.
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
            level: begin.map_or(LEVEL, Cluster::level),
            rate: rng.range(995, 1_006),
            paused_until_us: 0,
            slow_until_us: 0,
            slow_us_max: 0,
            busy_until_us: 0,
            inputs: Vec::new(),
            turn: None,
            gateway: Gateway::new(),
            inbox: Vec::new(),
            streams: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_id: 0,
            scripts: Arc::default(),
            zookeeper: Door::default(),
            changes: Vec::new(),
            dark: false,
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

    /// The gateway's time: how long its process might have run, by the machine's clock.
    pub(crate) fn now(&self, now_us: u64) -> Duration {
        Duration::from_nanos(now_us * self.rate)
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
            level: self.level,
        };
        match Node::new(config, boot) {
            Ok(node) => self.node = Some(node),
            Err(why) => panic!("node {} does not start: {why}", self.id),
        }
        self.files = Some(files);
        self.dark = false;
        self.epoch += 1;
    }

    /// Power fails, or only the process ends.
    pub(crate) fn crash(&mut self, power: bool, rng: &mut Rng) {
        self.node = None;
        self.files = None;
        self.inputs.clear();
        self.gateway = Gateway::new();
        self.inbox.clear();
        self.streams.clear();
        self.calls.clear();
        self.changes.clear();
        self.scripts = Arc::default();
        self.zookeeper = Door::default();
        self.dark = power;
        self.to_persist.clear();
        self.persisting = None;
        self.full = false;
        self.retrying = false;
        self.broken = None;
        self.snapshot = None;
        self.turn = None;
        self.epoch += 1;
        if power {
            let mut state = rng.next();
            self.disk.crash(&mut state);
        } else {
            self.disk.end_process();
        }
    }

    pub(crate) fn turn(&mut self, now_us: u64) -> Vec<Output> {
        let moment = self.moment(now_us);
        let mut inputs = std::mem::take(&mut self.inputs);
        self.gateway.take_node_inputs(&mut inputs);
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
    pub(crate) fn parcel(&self, message: RaftMessage) -> Option<SnapshotInTransit> {
        let reader = read_snapshot(&self.disk).ok()??;
        let at = reader.position();
        let offered = message.snapshot_at()?;
        let pieces = reader.pieces().collect::<Result<Vec<_>, _>>().ok()?;
        let same = (at.index, at.term) == (offered.index, offered.term);
        same.then(|| SnapshotInTransit { message, at, meta: reader.meta().to_vec(), pieces })
    }

    /// Writes a snapshot that came in and hands it to the node.
    pub(crate) fn receive(&mut self, parcel: SnapshotInTransit, rng: &mut Rng) -> bool {
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

    fn unpack(&self, parcel: &SnapshotInTransit) -> Result<(), WriteError> {
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
