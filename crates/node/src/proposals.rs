//! What this node proposes: numbered within its own session, and sent until it is seen applied.

use crate::batch::{BATCH_BYTES_MAX, Item, encoded_bytes};
use crate::io::{Output, RequestTag};
use crate::message::{Body, PeerMessage};
use crate::node::Node;
use crate::types::NodeId;
use holdfast_core::{
    Acquire, Command, Lease, Numbered, OpenSession, Proposal, RequestRef, Secret, SessionId,
    SessionKind, SessionRef, Term, Wait,
};
use std::collections::{BTreeSet, VecDeque};

/// How long a node may be silent before its session ends, and with it its clients' waits.
pub(crate) const NODE_TTL_MS: u64 = 10_000;

/// A proposal that has not been applied this long after it was sent is sent again.
const RESEND_MS: u64 = 1_000;

/// A node whose oldest proposal has been unapplied for this long stops heartbeating its session, so
/// that late copies of the proposal die with the session.
const STUCK_MS: u64 = 5_000;

/// What a number, a session and the item's kind add to a command at most.
const HEAD_BYTES_MAX: usize = 64;

/// Unnumbered items that may wait for a leader; older ones are of no use.
const LOOSE_MAX: usize = 16;

/// Bytes sent and not yet seen applied.
const IN_FLIGHT_BYTES_MAX: usize = 4 * BATCH_BYTES_MAX;

#[derive(Debug)]
pub(crate) struct ProposalQueue {
    node: NodeId,
    secret: Secret,
    /// Whether all members support sessions of a certain node, and leases that wait for a
    /// confirmation.
    all_know_unconfirmed: bool,
    sessions_asked: u64,
    pub(crate) session: Option<SessionRef>,
    /// The secret of the session being opened, and when it was last requested.
    opening: Option<(Secret, u64)>,
    /// A session that must not be used any more.
    abandoned: Option<SessionRef>,
    next_number: u64,
    /// Waiting for a number; none of it was ever sent.
    waiting: VecDeque<QueuedRequest>,
    /// Numbered and sent, not yet seen applied.
    unapplied: VecDeque<InFlight>,
    /// Items that need no number: losing one does no harm.
    loose: VecDeque<Item>,
    /// How many of `unapplied` have been sent to the leader in `sent_to`.
    sent: usize,
    sent_to: Option<(NodeId, u64)>,
    /// When sending last started over from the first one.
    sent_ms: u64,
    /// When one was last seen applied, or the first one was numbered.
    progress_ms: u64,
    in_flight_bytes: usize,
    /// When this node last sent the others what they do not know about it.
    pub(crate) introduced_ms: u64,
}

/// A queued request.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    ask: RequestTag,
    request: Option<RequestRef>,
    pub(crate) command: Command,
    bytes: usize,
}

impl QueuedRequest {
    pub(crate) fn new(ask: RequestTag, request: Option<RequestRef>, command: Command) -> Self {
        let bytes = encoded_bytes(&(&request, &command)).saturating_add(HEAD_BYTES_MAX);
        Self { ask, request, command, bytes }
    }

    /// Whether it fits into no entry: it would block the queue forever.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > BATCH_BYTES_MAX
    }
}

#[derive(Debug)]
struct InFlight {
    number: u64,
    ask: RequestTag,
    item: Item,
    bytes: usize,
    /// Whether its wait belongs to this node's session.
    adopted: bool,
    /// Nobody waits for it any more: from now on its number is sent with a no-op.
    withdrawn: bool,
}

impl ProposalQueue {
    pub(crate) fn new(node: NodeId, secret: Secret) -> Self {
        Self {
            node,
            secret,
            all_know_unconfirmed: false,
            sessions_asked: 0,
            session: None,
            opening: None,
            abandoned: None,
            next_number: 1,
            waiting: VecDeque::new(),
            unapplied: VecDeque::new(),
            loose: VecDeque::new(),
            sent: 0,
            sent_to: None,
            sent_ms: 0,
            progress_ms: 0,
            in_flight_bytes: 0,
            introduced_ms: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.unapplied.len()
    }

    pub(crate) fn add(&mut self, asked: QueuedRequest) {
        self.waiting.push_back(asked);
    }

    pub(crate) fn add_loose(&mut self, item: Item) {
        self.loose.push_back(item);
        if self.loose.len() > LOOSE_MAX {
            self.loose.pop_front();
        }
    }

    /// Drops what nobody waits for any more, and returns what was never sent: that is over. The
    /// number of a proposal that was sent must be used up, or nothing after it would be accepted;
    /// so it is sent again with a no-op. Whichever copy arrives first takes effect.
    pub(crate) fn withdraw(&mut self, asks: &BTreeSet<RequestTag>) -> Vec<RequestTag> {
        let mut unsent = Vec::new();
        self.waiting.retain(|asked| {
            let goes = asks.contains(&asked.ask);
            unsent.extend(goes.then_some(asked.ask));
            !goes
        });
        let Some(session) = self.session else { return unsent };
        for sent in self.unapplied.iter_mut().filter(|sent| asks.contains(&sent.ask)) {
            sent.withdrawn = true;
            sent.item = Item::Propose(nothing(session.id, sent.number));
        }
        unsent
    }

    /// Whether the session may be kept alive: not if something proposed under it got stuck.
    pub(crate) fn may_beat(&self, now_ms: u64) -> Option<SessionRef> {
        let stuck =
            !self.unapplied.is_empty() && now_ms.saturating_sub(self.progress_ms) > STUCK_MS;
        self.session.filter(|_| !stuck)
    }

    /// Recognises the session that this node requested.
    pub(crate) fn opened(&mut self, secret: Secret, id: SessionId) -> bool {
        let is_it = self.opening.is_some_and(|(opening, _)| opening == secret);
        if is_it {
            self.opening = None;
            self.session = Some(SessionRef { id, secret });
            self.next_number = 1;
        }
        is_it
    }

    /// This node's session has ended, so what was sent under its numbers can no longer take effect.
    /// It gets new numbers in a new session, except what was withdrawn, which is returned.
    pub(crate) fn session_ended(&mut self, id: SessionId) -> Vec<RequestTag> {
        let mut over = Vec::new();
        if self.session.is_none_or(|session| session.id != id) {
            return over;
        }
        self.session = None;
        while let Some(sent) = self.unapplied.pop_back() {
            if sent.withdrawn {
                over.push(sent.ask);
            } else if let Item::Propose(Proposal { request, mut command, .. }) = sent.item {
                if let (true, Command::Acquire(acquire)) = (sent.adopted, &mut command) {
                    disown(acquire);
                }
                let InFlight { ask, bytes, .. } = sent;
                self.waiting.push_front(QueuedRequest { ask, request, command, bytes });
            }
        }
        self.resend();
        over
    }

    /// Forgets everything that was proposed, and returns it: its outcome is unknown.
    pub(crate) fn lose_track(&mut self) -> Vec<RequestTag> {
        self.abandoned = self.session.take().or(self.abandoned);
        self.opening = None;
        let asks = self.unapplied.drain(..).map(|sent| sent.ask).collect();
        self.resend();
        asks
    }

    fn resend(&mut self) {
        (self.sent, self.in_flight_bytes) = (0, 0);
    }

    /// One of this node's proposals was applied.
    pub(crate) fn applied(&mut self, number: u64, now_ms: u64) -> Option<RequestTag> {
        let sent = self.unapplied.pop_front_if(|sent| sent.number == number)?;
        self.sent = self.sent.saturating_sub(1);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(sent.bytes);
        self.progress_ms = now_ms;
        Some(sent.ask)
    }

    /// Numbers the first in the queue, if nothing is left to send before it.
    fn number_next(&mut self) {
        let Some(session) = self.session.filter(|_| self.sent == self.unapplied.len()) else {
            return;
        };
        let Some(asked) = self.waiting.pop_front() else { return };
        let QueuedRequest { ask, request, mut command, bytes } = asked;
        let number = self.next_number;
        self.next_number += 1;
        let adopted = request.is_none() && self.adopt(&mut command, session);
        let from = Some(Numbered { session: session.id, number });
        let item = Item::Propose(Proposal { from, request, command });
        self.unapplied.push_back(InFlight { number, ask, item, bytes, adopted, withdrawn: false });
    }

    /// A wait without an owner becomes this node's: it ends with this node, or when the node
    /// cancels it because the waiting connection is gone. A deadline starts only when the node
    /// confirms that the client is still there: a node that is gone must not hold anything.
    fn adopt(&self, command: &mut Command, session: SessionRef) -> bool {
        let Command::Acquire(acquire) = command else { return false };
        if acquire.session.is_some() || acquire.wait == Wait::Try {
            return false;
        }
        acquire.session = Some(session);
        if let (true, Lease::Deadline { ttl_ms }) = (self.all_know_unconfirmed, acquire.lease) {
            acquire.lease = Lease::Unconfirmed { ttl_ms };
        }
        true
    }

    /// The items to send to the leader now.
    fn take_unsent(&mut self, leader: (NodeId, u64), now_ms: u64) -> Vec<Item> {
        let quiet_ms = now_ms.saturating_sub(self.progress_ms.max(self.sent_ms));
        if self.sent_to != Some(leader) || (self.sent > 0 && quiet_ms >= RESEND_MS) {
            (self.sent_to, self.sent_ms) = (Some(leader), now_ms);
            self.resend();
        }
        let mut items = self.ask_for_session(now_ms);
        items.extend(self.loose.drain(..));
        if self.unapplied.is_empty() {
            self.progress_ms = now_ms;
        }
        let mut bytes = 0;
        while let Some(next_bytes) = self.next_bytes() {
            let full = self.in_flight_bytes + next_bytes > IN_FLIGHT_BYTES_MAX;
            if bytes + next_bytes > BATCH_BYTES_MAX || (full && self.sent > 0) {
                break;
            }
            self.number_next();
            let Some(next) = self.unapplied.get(self.sent) else { break };
            bytes += next.bytes;
            self.in_flight_bytes += next.bytes;
            self.sent += 1;
            items.push(next.item.clone());
        }
        items
    }

    /// The size of the next proposal to send.
    fn next_bytes(&self) -> Option<usize> {
        let unapplied = self.unapplied.get(self.sent).map(|sent| sent.bytes);
        let waiting = || self.waiting.front().map(|asked| asked.bytes);
        unapplied.or_else(waiting)
    }

    /// Requests a session, repeatedly until one is seen; a spare one expires.
    fn ask_for_session(&mut self, now_ms: u64) -> Vec<Item> {
        let asked_ms = self.opening.map(|(_, asked_ms)| asked_ms);
        if self.session.is_some() || asked_ms.is_some_and(|asked_ms| now_ms < asked_ms + RESEND_MS)
        {
            return Vec::new();
        }
        let secret = self.opening.map_or_else(|| self.next_secret(), |(secret, _)| secret);
        self.opening = Some((secret, now_ms));
        let kind = if self.all_know_unconfirmed {
            SessionKind::NodeOf { node: self.node.0 }
        } else {
            SessionKind::Node
        };
        let open = OpenSession { secret, ttl_ms: NODE_TTL_MS, label: None, kind };
        let close = self.abandoned.take().map(Command::CloseSession);
        let commands = close.into_iter().chain([Command::OpenSession(open)]);
        commands.map(|command| Item::Propose(Proposal::from(command))).collect()
    }

    fn next_secret(&mut self) -> Secret {
        self.sessions_asked += 1;
        let mut secret = self.secret.0;
        for (byte, count) in secret.iter_mut().zip(self.sessions_asked.to_le_bytes()) {
            *byte ^= count;
        }
        Secret(secret)
    }
}

/// Makes an adopted wait ownerless again, before it moves to another session.
fn disown(acquire: &mut Acquire) {
    acquire.session = None;
    if let Lease::Unconfirmed { ttl_ms } = acquire.lease {
        acquire.lease = Lease::Deadline { ttl_ms };
    }
}

/// A term that has no leader.
const NO_TERM: Term = Term(0);

/// A proposal that only uses up a number: every replica, of every version, refuses it.
fn nothing(session: SessionId, number: u64) -> Proposal {
    let command = Command::ExpireSession { session, decided_in: NO_TERM };
    Proposal { from: Some(Numbered { session, number }), request: None, command }
}

/// Whether a command stands in for one that was withdrawn.
pub(crate) fn is_nothing(command: &Command) -> bool {
    matches!(command, Command::ExpireSession { decided_in: NO_TERM, .. })
}

impl Node {
    /// Sends what this node proposes to the leader.
    pub(crate) fn send_proposals(&mut self, out: &mut Vec<Output>) {
        let Some(leader) = self.consensus.leader() else { return };
        let term = self.consensus.term();
        // Earlier messages may have been lost with a leader.
        if self.proposals.session.is_some()
            && self.seen_ms.saturating_sub(self.proposals.introduced_ms) >= RESEND_MS
        {
            self.introduce();
        }
        self.proposals.all_know_unconfirmed = self.cluster.all_know_unconfirmed();
        let items = self.proposals.take_unsent((leader, term), self.seen_ms);
        if items.is_empty() {
            return;
        }
        if leader == self.id {
            self.gather(items);
        } else {
            let say = if self.cluster.all_know_forward_in() {
                Body::ForwardIn { term, items }
            } else {
                Body::Forward(items)
            };
            out.push(Output::Send { to: leader, message: PeerMessage(say) });
        }
    }
}
