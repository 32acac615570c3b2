//! ZooKeeper's promises, one file each. Clients say what they receive, in the order in which it comes
//! to them; `history` keeps what the log did to znodes.

mod complete;
mod cut_off;
mod ephemerals;
mod history;
mod moved;
mod one_wake_up;
mod reads;
mod replies;
mod same_line;
mod sessions;
mod watches;
mod zxids;

pub(crate) use cut_off::Unacknowledged;
pub(crate) use same_line::SUFFIX_LEN;
pub(crate) use watches::WatchKind;

use super::{Applied, Violation};
use history::History;
use holdfast_core::SessionId;
use holdfast_zookeeper::codec::WatchEvent;

/// Which client: its number and its life.
pub(crate) type ClientKey = (usize, u64);

#[derive(Debug, Default)]
pub(crate) struct ZooKeeperChecks {
    history: History,
    watches: watches::Watches,
    zxids: zxids::Zxids,
    ephemerals: ephemerals::Ephemerals,
    sessions: sessions::Sessions,
    moved: moved::Moved,
    one_wake_up: one_wake_up::OneWakeUp,
}

impl ZooKeeperChecks {
    pub(crate) fn applied(&mut self, applied: &Applied<'_>) -> Result<(), Violation> {
        self.history.applied(applied);
        complete::applied(applied, &self.history)?;
        self.sessions.applied(applied);
        self.ephemerals.applied(applied)?;
        self.moved.applied(applied)?;
        same_line::applied(applied)
    }

    /// A node has had its turn, and these of its connections are still open.
    pub(crate) fn open(
        connections: impl Iterator<Item = Unacknowledged>,
        now_us: u64,
    ) -> Result<(), Violation> {
        cut_off::open(connections, now_us)
    }

    /// A client got a session, or goes on with one, over its connection with this number.
    pub(crate) fn connected(
        &mut self,
        client: ClientKey,
        session: SessionId,
        connection: u64,
        asked_us: u64,
    ) -> Result<(), Violation> {
        self.moved.connected(client, connection);
        self.sessions.told_alive(session, asked_us)
    }

    /// A client was told that its session has ended.
    pub(crate) fn told_expired(&self, session: SessionId) -> Result<(), Violation> {
        self.sessions.told_expired(session)
    }

    /// A reply came, other than that of a ping.
    pub(crate) fn replied(
        &mut self,
        client: ClientKey,
        expected: i32,
        xid: i32,
    ) -> Result<(), Violation> {
        replies::replied(client, expected, xid)
    }

    /// A reply came with this zxid, that of a ping among them.
    pub(crate) fn saw(&mut self, client: ClientKey, zxid: u64) -> Result<(), Violation> {
        self.zxids.saw(client, zxid)?;
        self.watches.saw(client, zxid, &self.history)
    }

    /// A read said when this znode was last set, or that there is none.
    pub(crate) fn read(
        &self,
        client: ClientKey,
        path: &str,
        zxid: u64,
        mzxid: Option<u64>,
    ) -> Result<(), Violation> {
        reads::read(client, path, zxid, mzxid, &self.history)
    }

    /// A read or `addWatch` that was answered with this zxid has set a watch.
    pub(crate) fn watch(&mut self, client: ClientKey, path: &str, kind: WatchKind, zxid: u64) {
        self.watches.set(client, path, kind, zxid, &self.history);
    }

    pub(crate) fn event(&mut self, client: ClientKey, event: &WatchEvent) -> Result<(), Violation> {
        self.watches.event(client, event, &self.history)
    }

    /// A client that waits for an exclusive lock was woken by the end of this child.
    pub(crate) fn woken(&mut self, client: ClientKey, path: &str) -> Result<(), Violation> {
        self.one_wake_up.woken(client, path)
    }

    /// A client has lost its connection: its watches are gone until it sets them again.
    pub(crate) fn disconnected(&mut self, client: ClientKey) {
        self.watches.disconnected(client);
    }

    /// `setWatches` was answered with this zxid.
    pub(crate) fn watches_set(&mut self, client: ClientKey, zxid: u64) -> Result<(), Violation> {
        self.watches.set_again(client, zxid, &self.history)
    }

    /// A client has no session any more, or its process has ended.
    pub(crate) fn forget(&mut self, client: ClientKey) {
        self.watches.forget(client);
    }

    /// A client is about to delete a znode.
    pub(crate) fn deletes(&mut self, path: &str) {
        self.ephemerals.deletes(path);
    }

    /// A minute after the last fault.
    pub(crate) fn judge_the_end(&mut self, now_us: u64) -> Result<(), Violation> {
        self.watches.judge_the_end(&self.history, now_us)
    }
}
