//! `HOLDFAST.ACQUIRE`: a place in the line, where Redis only has tries.
//!
//! A ticket belongs to one connection and is never shared. The wait is owned by the node's session:
//! when the connection closes, the node cancels it. A client that lost its connection asks again
//! with the same owner id. Its earlier ticket is then ended first, through the log, so that the
//! older connection is notified, on whichever node it is; only then is a new ticket drawn. A ticket
//! that is already held is ended only if the client sends `RETRY`: otherwise two clients that share
//! an owner id by mistake would take the lock from each other.

use crate::error::Error;
use crate::lua::sha1_hex;
use crate::resp::Reply;
use bytes::Bytes;
use holdfast_core::{
    Acquire, Command, Door, EndReason, Ending, Grant, Label, Lease, LockName, Mode, Note, Proof,
    Reason, Refusal, SessionRef, State, Target, Token, Wait,
};

/// How far a line is searched for an earlier ticket of the same owner, unless the client retries:
/// every acquire searches, and a line may be long.
const LOOKED_THROUGH_MAX: usize = 1_024;

/// The owner of a ticket: a random string drawn by a server, for one acquire and its retries. It
/// ends with a checksum, so that one made up by hand, which others might make up too, is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerId(Label);

impl OwnerId {
    const PREFIX: &str = "owner-";
    const RANDOM_LEN: usize = 32;
    const CHECKSUM_LEN: usize = 8;
    /// How much of an invalid owner id an error shows.
    const SHOWN_MAX: usize = 64;

    /// Makes an owner id from these random bits.
    pub fn draw(random: [u64; 2]) -> String {
        let random = format!("{:016x}{:016x}", random[0], random[1]);
        format!("{}{random}{}", Self::PREFIX, Self::checksum(&random))
    }

    /// Parses an owner id, which must have been drawn by a server.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let label = Self::label(text);
        label.map(Self).ok_or_else(|| {
            let shown = String::from_utf8_lossy(text.get(..Self::SHOWN_MAX).unwrap_or(text));
            Error::err(format_args!(
                "'{shown}' is not an owner id: draw one with HOLDFAST.OWNERID for each lock that \
                 you acquire"
            ))
        })
    }

    fn label(text: &[u8]) -> Option<Label> {
        let rest = std::str::from_utf8(text).ok()?.strip_prefix(Self::PREFIX)?;
        let (random, checksum) = rest.split_at_checked(Self::RANDOM_LEN)?;
        (checksum == Self::checksum(random)).then(|| Label::parse(text).ok())?
    }

    fn checksum(random: &str) -> String {
        let mut checksum = sha1_hex(random.as_bytes());
        checksum.truncate(Self::CHECKSUM_LEN);
        checksum
    }
}

/// One acquire of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquiring {
    /// The lock.
    pub name: LockName,
    /// The owner of the ticket.
    pub owner: OwnerId,
    /// How long the lock is held, from the grant.
    pub ttl_ms: u64,
    /// How long to wait; 0 means try.
    pub wait_ms: u64,
    /// The client has asked before and does not know the outcome: whatever it was, it is ended.
    pub retry: bool,
}

/// The ticket of an earlier request with the same name and owner id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierTicket {
    /// Its number.
    pub token: Token,
    /// Whether it is being served.
    pub held: bool,
}

impl Acquiring {
    pub(crate) fn new(
        name: LockName,
        owner: &Bytes,
        ttl_ms: u64,
        wait_ms: u64,
        retry: bool,
    ) -> Result<Self, Error> {
        Ok(Self { name, owner: OwnerId::parse(owner)?, ttl_ms, wait_ms, retry })
    }

    /// The ticket that an earlier request drew. `state` must be current.
    pub fn find(&self, state: &State) -> Option<EarlierTicket> {
        self.tickets(state).first().copied()
    }

    /// The first of several tickets of this owner: another request was on its way while this one
    /// drew its own.
    pub fn find_other(&self, state: &State) -> Option<EarlierTicket> {
        match self.tickets(state).as_slice() {
            [first, _, ..] => Some(*first),
            _ => None,
        }
    }

    /// All tickets of this owner, in the order of the line.
    fn tickets(&self, state: &State) -> Vec<EarlierTicket> {
        // A retry must find its ticket anywhere in the line.
        let max = if self.retry { usize::MAX } else { LOOKED_THROUGH_MAX };
        let found = state.labelled(&self.name, Door::Redis, &self.owner.0, max);
        found.into_iter().map(|(token, held)| EarlierTicket { token, held }).collect()
    }

    /// The command that ends the earlier ticket, so that this request can draw its own; an error if
    /// it must stay.
    pub fn take_over(&self, earlier: EarlierTicket) -> Result<Command, Error> {
        let EarlierTicket { token, held } = earlier;
        let target = Target { name: self.name.clone(), token: Some(token) };
        let proof = Proof::Label(self.owner.0.clone());
        if !held {
            // No client has been sent this grant yet.
            return Ok(Command::Cancel { target, proof });
        }
        if !self.retry {
            return Err(Error::new(format!(
                "HELD {} is held already by this owner id, with token {token}: draw another owner \
                 id with HOLDFAST.OWNERID; or if you have asked before and lost the answer, add \
                 RETRY",
                self.name
            )));
        }
        // It is not known whether anyone has acted on it, so this is not a release.
        let by = self.owner.0.clone();
        let reason = Reason::parse("its owner asked again with RETRY");
        let reason = reason.map_err(|bad| Error::bad_text("this reason", bad))?;
        Ok(Command::Force { name: self.name.clone(), token: Some(token), by, reason })
    }

    /// The reply to a client whose ticket ended before the client was told that it is served.
    pub fn not_served(&self, how: EndReason) -> Reply {
        let cause = match how {
            // Nobody else can cancel it.
            EndReason::Cancelled => "another connection asks for it with the same owner id",
            EndReason::Forced => {
                "its turn came, but another connection that retries with the same owner id took it \
                 over, or an operator broke the lock"
            }
            _ => return Reply::Null,
        };
        Reply::Error(Error::new(format!(
            "TAKENOVER this wait for {} is over: {cause}; send it again with RETRY if you still want \
             the lock",
            self.name
        )))
    }

    /// Draws a ticket. `session` owns the wait; `None` means the node's own session.
    pub fn acquire(&self, session: Option<SessionRef>) -> Acquire {
        Acquire {
            names: vec![self.name.clone()],
            mode: Mode::Exclusive,
            session,
            lease: Lease::Deadline { ttl_ms: self.ttl_ms },
            wait: if self.wait_ms == 0 { Wait::Try } else { Wait::For { ms: self.wait_ms } },
            label: Some(self.owner.0.clone()),
            note: None,
            secret: None,
            claims: Vec::new(),
            lock_delay_ms: 0,
            door: Door::Redis,
        }
    }

    /// Releases a lock whose grant never reached the client.
    pub fn release(&self, token: Token) -> Command {
        let target = Target { name: self.name.clone(), token: Some(token) };
        Command::Release { target, proof: Proof::Label(self.owner.0.clone()) }
    }

    /// The reply to a client that is served.
    pub fn granted(&self, grant: &Grant) -> Reply {
        let after = grant.after.iter().flat_map(|after| after.iter());
        let last = after.filter(|after| after.name == self.name).find_map(|a| a.last.as_deref());
        reply(grant.token, last)
    }

    /// The reply if no ticket was drawn.
    pub fn refused(&self, refusal: &Refusal) -> Reply {
        match refusal {
            Refusal::Busy { .. } => Reply::Null,
            refusal => Reply::Error(Error::refused(refusal)),
        }
    }
}

/// The token, and how the last holder ended: how, its token, its label and its note.
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
