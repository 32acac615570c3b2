//! What the naive lock keeps.

use holdfast_core::{
    Answer, Command, Door, EndReason, Ending, EventKind, Forced, Label, Lease, LockName, Mode,
    Names, Note, Object, PriorEndings, Refusal, RequestId, Secret, SessionId, SessionKind, Token,
};
use std::sync::Arc;

/// A waiting or held ticket.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    pub(crate) token: Token,
    /// In byte order.
    pub(crate) names: Vec<LockName>,
    pub(crate) mode: Mode,
    /// Its owner.
    pub(crate) session: Option<SessionId>,
    pub(crate) lease: Lease,
    /// When its wait ends, or once it is held, its lease.
    pub(crate) due_ms: Option<u64>,
    pub(crate) label: Option<Label>,
    pub(crate) note: Option<Note>,
    pub(crate) secret: Option<Secret>,
    pub(crate) claims: Vec<Token>,
    pub(crate) lock_delay_ms: u64,
    pub(crate) door: Door,
    pub(crate) held: bool,
    pub(crate) joined_ms: u64,
    pub(crate) granted_ms: u64,
    /// The shared ticket that this one replaces.
    pub(crate) upgrades: Option<Token>,
    pub(crate) revocation: Option<Revocation>,
    /// What the grant contained about earlier holders.
    pub(crate) after: Option<Arc<[PriorEndings]>>,
    /// The change at which it was relabelled.
    pub(crate) relabelled: u64,
}

impl Ticket {
    /// The session that it ends with: once it is held, only with a session lease.
    pub(crate) fn bound_to(&self) -> Option<SessionId> {
        self.session
            .filter(|_| !self.held || self.lease == Lease::Session || !self.is_confirmed_holder())
    }

    /// Whether its owner may know that it holds the lock.
    pub(crate) fn is_confirmed_holder(&self) -> bool {
        !(self.held && matches!(self.lease, Lease::Unconfirmed { .. }))
    }

    pub(crate) fn is_in_line(&self, name: &LockName) -> bool {
        self.names.contains(name)
    }

    pub(crate) fn shown_names(&self) -> Names {
        match self.names.as_slice() {
            [name] => Names::One(name.clone()),
            names => Names::Many(Arc::from(names)),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Revocation {
    pub(crate) until_ms: u64,
    pub(crate) by: Forced,
    pub(crate) force: bool,
}

/// A ticket that is over.
#[derive(Debug, Clone)]
pub(crate) struct OverTicket {
    pub(crate) token: Token,
    pub(crate) how: EndReason,
    pub(crate) at_ms: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) secret: Secret,
    pub(crate) ttl_ms: u64,
    pub(crate) label: Option<Label>,
    pub(crate) kind: SessionKind,
    pub(crate) opened_ms: u64,
    /// The number of its last proposal, if it is a node's.
    pub(crate) number: u64,
    /// The lowest request id that it still needs.
    pub(crate) lowest: RequestId,
    pub(crate) requests: Vec<(RequestId, Known)>,
    /// Set while its tickets are being ended.
    pub(crate) ended: Option<EndReason>,
}

/// A request that has arrived, or whose outcome was asked for before it did.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The command, without what may differ between attempts; `None` if it has not arrived.
    pub(crate) asked: Option<Command>,
    pub(crate) became: Remembered,
}

/// The outcome of a request.
#[derive(Debug, Clone)]
pub(crate) enum Remembered {
    /// It drew a ticket; the answer is that ticket's current state.
    Drew(Token),
    /// It has a fixed answer.
    Answered(Result<Answer, Refusal>),
    /// It arrived too late.
    Barred,
}

/// A hash or a list.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) name: LockName,
    pub(crate) object: Arc<Object>,
    pub(crate) version: u64,
    pub(crate) due_ms: Option<u64>,
}

/// What is remembered about a name, besides its line.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    pub(crate) name: LockName,
    pub(crate) last: Option<Arc<Ending>>,
    pub(crate) death: Option<Death>,
    pub(crate) delayed_until_ms: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Death {
    /// The number of the last one; the first of all has 1.
    pub(crate) number: u64,
    /// The first one that nobody has recovered from.
    pub(crate) ending: Arc<Ending>,
    /// When the last one was.
    pub(crate) at_ms: u64,
}

/// An event, as the history must show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) at_ms: u64,
    pub(crate) wall_ms: u64,
    pub(crate) name: LockName,
    pub(crate) token: Token,
    pub(crate) label: Option<Label>,
    pub(crate) what: EventKind,
}
