//! What is dropped is let go: no live session holds a ticket that its client does not know of, and a
//! session that its client closed leaves no ticket behind.

use super::{DOOR, Violation};
use crate::client::Client;
use crate::zookeeper;
use holdfast_core::{Label, Lease, LockName, SessionId, State, TicketView, Token};

/// What the clients' locks are called.
const PREFIXES: [&str; 5] = ["lock-", "long-", "kept-", "read-", "permits-"];
const NAMES: u64 = 4;

/// How long it may take to give up a ticket when nothing is wrong.
const GIVEN_UP_US: u64 = 5_000_000;

fn held_by(state: &State, session: SessionId, prefixes: &[&str]) -> Vec<TicketView> {
    let mut held = Vec::new();
    for prefix in prefixes {
        for number in 0..NAMES {
            let name = LockName::parse(format!("{prefix}{number}")).ok();
            let view = name.and_then(|name| state.lock_view(&name, 100));
            let holders = view.map(|view| view.holders).unwrap_or_default();
            held.extend(holders.into_iter().filter(|ticket| ticket.session == Some(session)));
        }
    }
    held
}

/// A client has closed this session, after everything that it asked was settled. Only leases that outlast
/// the run are looked at: one that may be over by the client's clock is left to run out.
pub(crate) fn closed(state: &State, session: SessionId, client: usize) -> Result<(), Violation> {
    let with_own_lease = |ticket: &TicketView| matches!(ticket.lease, Lease::Deadline { .. });
    match held_by(state, session, &["long-"]).into_iter().find(with_own_lease) {
        Some(ticket) => Err(format!(
            "let go: client {client} has closed its session, and token {} of it is held",
            ticket.token
        )),
        None => Ok(()),
    }
}

/// No ticket stands in line or is held for a caller that hung up a while ago.
pub(crate) fn ghosts(
    state: &State,
    abandoned: &[(Label, u64)],
    now_us: u64,
) -> Result<(), Violation> {
    for number in 0..NAMES {
        let name = LockName::parse(format!("{DOOR}{number}")).ok();
        let Some(view) = name.and_then(|name| state.lock_view(&name, 100)) else { continue };
        for ticket in view.holders.iter().chain(&view.waiters) {
            let gone = abandoned.iter().find(|(label, _)| ticket.label.as_ref() == Some(label));
            if let Some((label, at_us)) = gone.filter(|(_, at_us)| at_us + GIVEN_UP_US < now_us) {
                return Err(format!(
                    "let go: the caller of {label} hung up {} ms ago, and its ticket is there",
                    (now_us - at_us) / 1_000
                ));
            }
        }
    }
    Ok(())
}

/// A minute after the last fault, what a client's session holds its client knows of.
pub(crate) fn judge(state: &State, client: &Client) -> Result<(), Violation> {
    let sizes = client.session.sizes();
    if sizes.queued + sizes.pending + sizes.waiting > 0 {
        return Ok(());
    }
    let known = |token: Token| client.app.guards.values().any(|guard| guard.token() == token);
    for session in client.opened.values() {
        if let Some(ticket) =
            held_by(state, *session, &PREFIXES).into_iter().find(|ticket| !known(ticket.token))
        {
            return Err(format!(
                "let go: client {} holds token {} and does not know of it",
                client.number, ticket.token
            ));
        }
    }
    Ok(())
}

/// The same of a client of the ZooKeeper door, which has one ticket at most.
pub(crate) fn judge_zookeeper(state: &State, client: &zookeeper::Client) -> Result<(), Violation> {
    let Some((session, known)) = client.session.zip(client.ticket()) else { return Ok(()) };
    let view = state.session_view(session.id, usize::MAX);
    let tickets = view.map(|view| view.tickets).unwrap_or_default();
    match tickets.into_iter().find(|token| Some(*token) != known) {
        Some(token) => Err(format!(
            "let go: ZooKeeper client {} has token {token} and does not know of it",
            client.number
        )),
        None => Ok(()),
    }
}
