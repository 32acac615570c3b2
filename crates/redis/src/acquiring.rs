//! `HOLDFAST.ACQUIRE`: a place in the line, where Redis has only tries.
//!
//! The wait belongs to the node's own session: when the connection closes, the node cancels it.
//! A client that lost its connection asks again with the same name and label: as long as its
//! ticket stands, it finds that one and draws no other.

use crate::error::Error;
use crate::resp::Reply;
use bytes::Bytes;
use holdfast_core::{
    Acquire, Command, Door, Ending, Grant, Label, Lease, LockName, Mode, Note, Proof, Refusal,
    SessionRef, State, Target, TicketView, Token, Wait,
};

/// How far a line is looked through for a ticket that is asked for again.
const LOOKED_THROUGH_MAX: usize = 1_024;

/// One who wants a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquiring {
    /// Which lock.
    pub name: LockName,
    /// What it calls itself.
    pub label: Label,
    /// How long it holds, from the grant.
    pub ttl_ms: u64,
    /// How long it waits; 0 is a try.
    pub wait_ms: u64,
}

/// A ticket of an earlier request with the same name and label.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// It is served: this is the reply.
    Held(Reply),
    /// It waits under this number: its grant is to be waited for.
    Waiting(Token),
}

impl Acquiring {
    pub(crate) fn new(
        name: LockName,
        label: &Bytes,
        ttl_ms: u64,
        wait_ms: u64,
    ) -> Result<Self, Error> {
        let label = Label::parse(label).map_err(|bad| Error::bad_text("this label", bad))?;
        Ok(Self { name, label, ttl_ms, wait_ms })
    }

    /// The ticket that an earlier request drew. It must be looked for in the current state.
    pub fn find(&self, state: &State) -> Option<Found> {
        let view = state.lock_view(&self.name, LOOKED_THROUGH_MAX)?;
        let ours = |ticket: &&TicketView| {
            ticket.door == Door::Redis && ticket.label.as_ref() == Some(&self.label)
        };
        if let Some(holder) = view.holders.iter().find(ours) {
            let last = view.last.as_deref();
            return Some(Found::Held(reply(holder.token, last)));
        }
        view.waiters.iter().find(ours).map(|waiter| Found::Waiting(waiter.token))
    }

    /// Draws a ticket. Its wait is owned by `session`; if none is said, by the node's own.
    pub fn acquire(&self, session: Option<SessionRef>) -> Acquire {
        Acquire {
            names: vec![self.name.clone()],
            mode: Mode::Exclusive,
            session,
            lease: Lease::Deadline { ttl_ms: self.ttl_ms },
            wait: if self.wait_ms == 0 { Wait::Try } else { Wait::For { ms: self.wait_ms } },
            label: Some(self.label.clone()),
            note: None,
            secret: None,
            claims: Vec::new(),
            lock_delay_ms: 0,
            door: Door::Redis,
        }
    }

    /// Gives up a wait, because its connection has closed.
    pub fn cancel(&self, token: Token) -> Command {
        Command::Cancel {
            target: Target { name: self.name.clone(), token: Some(token) },
            proof: Proof::Label(self.label.clone()),
        }
    }

    /// What the client gets when it is served.
    pub fn granted(&self, grant: &Grant) -> Reply {
        let after = grant.after.iter().flat_map(|after| after.iter());
        let last = after.filter(|after| after.name == self.name).find_map(|a| a.last.as_deref());
        reply(grant.token, last)
    }

    /// What the client gets if no ticket was drawn.
    pub fn refused(&self, refusal: &Refusal) -> Reply {
        match refusal {
            Refusal::Busy { .. } => Reply::Null,
            refusal => Reply::Error(Error::refused(refusal)),
        }
    }
}

/// The token, and how the last holder ended: how, its token, its label, its note.
fn reply(token: Token, last: Option<&Ending>) -> Reply {
    let number = |token: Token| Reply::Integer(i64::try_from(token.0).unwrap_or(i64::MAX));
    let text = |text: Option<&[u8]>| text.map_or(Reply::Null, Reply::bulk);
    let label = last.and_then(|last| last.label.as_ref()).map(Label::as_bytes);
    let note = last.and_then(|last| last.note.as_ref()).map(Note::as_bytes);
    Reply::Array(vec![
        number(token),
        last.map_or(Reply::Null, |last| Reply::bulk(last.how.to_string())),
        last.map_or(Reply::Null, |last| number(last.token)),
        text(label),
        text(note),
    ])
}
