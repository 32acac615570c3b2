//! What must hold over a whole run, judged only by what clients see: commands, answers, effects.
//!
//! This knows nothing about how the core or the model decide. It could judge any lock service.

mod deadlock;
mod effects;
mod transact;
mod tree;

use super::run::Wrong;
use holdfast_core::{
    Acquire, Answer, Command, Door, Effect, EndReason, Fence, Lease, Limits, LockName, Mode,
    Numbered, Proof, Proposal, ProposalOutcome, Refusal, RequestKey, RequestRef, Secret, SessionId,
    SessionKind, SessionRef, Target, Term, TicketStatus, Token, TreeCommand, TreeWrite, Wait,
};
use std::collections::{BTreeMap, BTreeSet};
use transact::SeenObject;

/// A release is remembered for at least this many effects: each is at most a few events of the
/// history.
const RELEASES_KNOWN_FOR: usize = 100;

/// A ticket as its owner sees it.
#[derive(Debug, Clone)]
struct Seen {
    names: Vec<LockName>,
    session: Option<SessionId>,
    secret: Option<Secret>,
    lease: Lease,
    door: Door,
    held: bool,
    /// Neither its wait nor its deadline may end before this time.
    not_before_ms: u64,
    mode: Mode,
    /// What its owner keeps while it waits.
    claims: Vec<Token>,
    /// The shared ticket that it replaces.
    upgrades: Option<Token>,
}

/// A line as a watcher sees it.
#[derive(Debug, Default)]
struct Line {
    holders: Vec<(Token, Mode)>,
    waiters: Vec<Token>,
    /// The highest token granted so far.
    highest: Option<Token>,
    /// The last ending of a holder, if it was a death.
    died_last: Option<Token>,
    delayed_until_ms: u64,
}

/// A mark "needs recovery", which the next holder must learn of.
#[derive(Debug)]
struct Mark {
    name: LockName,
    /// The first that died. Several if older ones may have been forgotten in between.
    first: Vec<Token>,
    /// When the last one died.
    at_ms: u64,
}

#[derive(Debug)]
pub(crate) struct Promises {
    limits: Limits,
    now_ms: u64,
    term: Term,
    /// The highest number seen.
    counter: u64,
    tickets: BTreeMap<Token, Seen>,
    /// When tickets ended.
    over: BTreeMap<Token, u64>,
    lines: BTreeMap<LockName, Line>,
    /// Those that no holder has cleared, oldest first. Some may be forgotten by now.
    marks: Vec<Mark>,
    sessions: BTreeMap<SessionId, (Secret, Option<EndReason>)>,
    /// Node sessions with the node's id.
    nodes: BTreeMap<SessionId, u64>,
    numbers: BTreeMap<SessionId, u64>,
    /// Requests that were answered, with the ticket that they drew, and their commands.
    answered: Vec<(RequestRef, Option<Token>, Command)>,
    /// When requests without a session were barred.
    barred: BTreeMap<RequestKey, u64>,
    /// Effects so far.
    effects: usize,
    /// Holders that released, and after how many effects.
    released: BTreeMap<Token, (Vec<LockName>, usize)>,
    fences: BTreeMap<LockName, (Token, Token)>,
    objects: BTreeMap<LockName, SeenObject>,
    /// The highest version seen.
    versions: u64,
}

impl Promises {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            now_ms: 0,
            term: Term::default(),
            counter: 0,
            tickets: BTreeMap::new(),
            over: BTreeMap::new(),
            lines: BTreeMap::new(),
            marks: Vec::new(),
            sessions: BTreeMap::new(),
            nodes: BTreeMap::new(),
            numbers: BTreeMap::new(),
            answered: Vec::new(),
            barred: BTreeMap::new(),
            effects: 0,
            released: BTreeMap::new(),
            fences: BTreeMap::new(),
            objects: BTreeMap::new(),
            versions: 0,
        }
    }

    /// Judges one command by its results.
    pub(crate) fn check(
        &mut self,
        proposal: &Proposal,
        taken: &ProposalOutcome,
        effects: &[Effect],
    ) -> Result<(), Wrong> {
        if let Some(from) = proposal.from {
            self.check_number(from, taken)?;
        }
        let ProposalOutcome::Answered(answer) = taken else {
            return must(effects.is_empty(), "one effect", || {
                "effects of what was not taken".into()
            });
        };
        if let Command::Tick(tick) = &proposal.command
            && answer.is_ok()
        {
            self.now_ms = self.now_ms.saturating_add(tick.elapsed_ms);
            self.term = tick.term;
        }
        let retry = self.known_request(proposal);
        self.check_barred(proposal, answer)?;
        self.check_released(proposal, answer)?;
        if let Ok(answer) = answer {
            self.check_asker(proposal)?;
            self.check_answer(proposal, answer, retry)?;
        } else {
            must(effects.is_empty(), "refusals", || "effects of a refused command".into())?;
        }
        if retry {
            must(effects.is_empty(), "one effect", || "a retry had effects".into())?;
        }
        for effect in effects {
            self.effects += 1;
            self.check_effect(proposal, effect)?;
        }
        self.check_no_deadlock()?;
        self.check_one_session_a_node()
    }

    /// A node has at most one living session.
    fn check_one_session_a_node(&self) -> Result<(), Wrong> {
        let living = self.nodes.iter().filter(|(session, _)| self.ended(**session).is_none());
        let mut nodes: Vec<u64> = living.map(|(_, node)| *node).collect();
        nodes.sort_unstable();
        let twice = nodes.array_windows().find(|[one, other]| one == other);
        must(twice.is_none(), "sessions", || format!("a node has two: {twice:?}"))
    }

    /// A barred request does not take effect for as long as a copy could still arrive.
    fn check_barred(
        &mut self,
        proposal: &Proposal,
        answer: &Result<Answer, Refusal>,
    ) -> Result<(), Wrong> {
        if let (Command::Outcome(RequestRef::Alone(key)), Ok(Answer::Barred)) =
            (&proposal.command, answer)
        {
            let kept_ms = self.limits.request_alone_kept_ms;
            let since = self.barred.entry(key.clone()).or_insert(self.now_ms);
            if since.saturating_add(kept_ms) <= self.now_ms {
                *since = self.now_ms;
            }
        }
        let Some(RequestRef::Alone(key)) = &proposal.request else { return Ok(()) };
        let until_ms = self
            .barred
            .get(key)
            .map(|since| since.saturating_add(self.limits.request_alone_kept_ms));
        let barred = until_ms.is_some_and(|until_ms| until_ms > self.now_ms);
        must(!barred || answer.is_err(), "certain outcome", || format!("{key} was barred"))
    }

    /// A repeated release is recognised, and not answered "not held".
    fn check_released(
        &self,
        proposal: &Proposal,
        answer: &Result<Answer, Refusal>,
    ) -> Result<(), Wrong> {
        let (Command::Release { target, .. }, Err(Refusal::NotHeld { .. })) =
            (&proposal.command, answer)
        else {
            return Ok(());
        };
        let before = target.token.and_then(|token| self.released.get(&token));
        let recently = before.is_some_and(|(names, at)| {
            names.contains(&target.name) && self.effects - at < RELEASES_KNOWN_FOR
        });
        let first_try = proposal.request.is_none();
        must(!(recently && first_try), "certain outcome", || {
            format!("{target:?} was released before")
        })
    }

    /// A node's proposals are accepted once and in order.
    fn check_number(&mut self, from: Numbered, taken: &ProposalOutcome) -> Result<(), Wrong> {
        let gone = self.ended(from.session).is_some();
        let last = self.numbers.entry(from.session).or_default();
        let right = match taken {
            ProposalOutcome::Answered(_) => from.number == *last + 1 && !gone,
            ProposalOutcome::Seen => from.number <= *last,
            ProposalOutcome::TooSoon => from.number > *last + 1,
            ProposalOutcome::NodeGone => true,
        };
        if matches!(taken, ProposalOutcome::Answered(_)) {
            *last = from.number;
        }
        must(right, "numbered proposals", || format!("{from:?} was {taken:?}"))
    }

    /// An ended session accepts no requests, even while its tickets are being ended.
    fn check_asker(&self, proposal: &Proposal) -> Result<(), Wrong> {
        let of_request = match &proposal.request {
            Some(RequestRef::InSession { session, .. }) => Some(session.id),
            _ => None,
        };
        let of_ticket = match &proposal.command {
            Command::Acquire(acquire) => acquire.session.map(|session| session.id),
            Command::Tree(
                TreeCommand::Attach(session) | TreeCommand::Write(TreeWrite { session, .. }),
            ) => Some(session.id),
            _ => None,
        };
        for session in [of_request, of_ticket].into_iter().flatten() {
            let lives = self.ended(session).is_none();
            // A ticket may have outlived it, and be found by its own request id.
            let again = matches!(proposal.request, Some(RequestRef::Alone(_)));
            must(lives || again, "sessions", || format!("session {session} ended, and asked"))?;
        }
        Ok(())
    }

    /// Whether a request was answered before and the answer can't have been forgotten since.
    fn known_request(&self, proposal: &Proposal) -> bool {
        let Some(request) = &proposal.request else { return false };
        self.answered.iter().rev().any(|(known, drew, _)| match (known, request) {
            (RequestRef::Alone(known), RequestRef::Alone(key)) => {
                let over_ms = drew.and_then(|token| self.over.get(&token).copied());
                let kept = over_ms.is_none_or(|over_ms| {
                    over_ms.saturating_add(self.limits.request_alone_kept_ms) > self.now_ms
                });
                known == key && drew.is_some() && kept
            }
            (
                RequestRef::InSession { session: known, id: known_id, .. },
                RequestRef::InSession { session, id, .. },
            ) => known.id == session.id && known_id == id,
            _ => false,
        })
    }

    fn check_answer(
        &mut self,
        proposal: &Proposal,
        answer: &Answer,
        retry: bool,
    ) -> Result<(), Wrong> {
        let drew = match answer {
            Answer::TicketStatus(
                TicketStatus::Waiting { token, .. } | TicketStatus::Over { token, .. },
            ) => Some(*token),
            Answer::TicketStatus(TicketStatus::Held(grant)) => Some(grant.token),
            _ => None,
        };
        if let Command::Acquire(_) | Command::Upgrade { .. } = proposal.command
            && let Some(token) = drew
        {
            self.check_drawn(proposal, token, retry)?;
            if let Answer::TicketStatus(TicketStatus::Held(grant)) = answer {
                let held = self.tickets.get(&token).is_none_or(|seen| seen.held) || !retry;
                must(held && !self.over.contains_key(&token), "certain outcome", || {
                    format!("{grant:?} is not held")
                })?;
            }
        }
        if let Some(request) = &proposal.request
            && !retry
        {
            self.answered.push((request.clone(), drew, proposal.command.clone()));
        }
        if retry {
            let first = self
                .answered
                .iter()
                .rev()
                .find(|(known, _, _)| same_request(known, proposal.request.as_ref()));
            let same = first.is_none_or(|(_, _, first)| asks_the_same(first, &proposal.command));
            return must(same, "certain outcome", || {
                format!("{:?} is the answer to {first:?}", proposal.command)
            });
        }
        match (answer, &proposal.command) {
            (Answer::SessionOpened(id), Command::OpenSession(open)) => {
                let node = match open.kind {
                    SessionKind::NodeOf { node } => Some(node),
                    SessionKind::Client | SessionKind::Node => None,
                };
                let before = self.sessions.insert(*id, (open.secret, None));
                let same = before == Some((open.secret, None))
                    && node.is_some()
                    && self.nodes.get(id).copied() == node;
                self.nodes.extend(node.map(|node| (*id, node)));
                must(before.is_none() || same, "sessions", || {
                    format!("session {id} was drawn twice")
                })
            }
            (
                Answer::Renewed { token, due_ms },
                Command::Renew { .. } | Command::Persist { .. },
            ) => {
                let Some(seen) = self.tickets.get_mut(token) else { return Ok(()) };
                seen.lease = due_ms.map_or(Lease::Permanent, |_| Lease::Deadline { ttl_ms: 0 });
                seen.not_before_ms = due_ms.unwrap_or(u64::MAX);
                if let Command::Renew { ttl_ms, .. } = proposal.command {
                    let right_ms = self.now_ms.saturating_add(ttl_ms);
                    let right = due_ms.unwrap_or(u64::MAX) >= right_ms;
                    return must(right, "leases", || format!("renewed to {due_ms:?} too early"));
                }
                Ok(())
            }
            (Answer::Passed(fence), command) => self.check_fence(command, fence),
            (Answer::Written(results), Command::Tree(TreeCommand::Write(write))) => {
                self.check_written(write, results)
            }
            (Answer::Transacted(tokens), Command::Transact(transaction)) => {
                self.check_transacted(transaction, tokens)
            }
            _ => Ok(()),
        }
    }

    /// A request draws one number, and that number is never drawn again.
    fn check_drawn(&mut self, proposal: &Proposal, token: Token, retry: bool) -> Result<(), Wrong> {
        let drew = |(known, drew, _): &(RequestRef, Option<Token>, Command)| {
            same_request(known, proposal.request.as_ref()).then_some(*drew)?
        };
        let before = self.answered.iter().rev().find_map(drew);
        // A request may also be remembered for longer than it must be.
        if retry || before == Some(token) {
            return must(before == Some(token), "one effect", || {
                format!("a retry drew {token}, the request had drawn {before:?}")
            });
        }
        must(token.0 > self.counter, "numbers rise", || {
            format!("{token} was drawn after {}", self.counter)
        })?;
        self.counter = token.0;
        let seen = match &proposal.command {
            Command::Acquire(acquire) => Seen {
                names: acquire.names.clone(),
                session: acquire.session.map(|session| session.id),
                secret: acquire.secret,
                lease: acquire.lease,
                door: acquire.door,
                held: false,
                not_before_ms: 0,
                mode: acquire.mode,
                claims: acquire.claims.clone(),
                upgrades: None,
            },
            Command::Upgrade { target, claims, .. } => match self.seen_target(target) {
                Some((token, shared)) => Seen {
                    held: false,
                    mode: Mode::Exclusive,
                    claims: [claims.as_slice(), &[token]].concat(),
                    upgrades: Some(token),
                    // A ticket that outlived its session has none that could end the wait.
                    session: shared.session.filter(|session| self.ended(*session).is_none()),
                    ..shared.clone()
                },
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        let wait = match &proposal.command {
            Command::Acquire(acquire) => acquire.wait,
            Command::Upgrade { wait, .. } => *wait,
            _ => Wait::Try,
        };
        let not_before_ms = match wait {
            Wait::For { ms } => self.now_ms.saturating_add(ms),
            Wait::Try | Wait::Forever => u64::MAX,
        };
        for name in &seen.names {
            self.lines.entry(name.clone()).or_default().waiters.push(token);
        }
        self.tickets.insert(token, Seen { not_before_ms, ..seen });
        Ok(())
    }

    /// The target's ticket.
    fn seen_target(&self, target: &Target) -> Option<(Token, &Seen)> {
        let only = || match self.lines.get(&target.name)?.holders.as_slice() {
            [(token, _)] => Some(*token),
            _ => None,
        };
        let token = target.token.or_else(only)?;
        Some((token, self.tickets.get(&token)?))
    }

    /// Whether a proof is right for a ticket.
    fn proves(&self, seen: &Seen, proof: &Proof) -> bool {
        match proof {
            Proof::Secret(secret) => {
                let of_session = seen.session.and_then(|id| self.sessions.get(&id));
                seen.secret == Some(*secret) || of_session.is_some_and(|(own, _)| own == secret)
            }
            Proof::Label(_) => seen.secret.is_none(),
        }
    }

    /// A token that passed a fence is not older than one that it conflicts with.
    fn check_fence(&mut self, command: &Command, fence: &Fence) -> Result<(), Wrong> {
        let (Command::Put { key, token, mode, .. } | Command::Raise { key, token, mode }) = command
        else {
            return Ok(());
        };
        let (exclusive, any) = self.fences.entry(key.clone()).or_insert((Token(0), Token(0)));
        let floor = if *mode == Mode::Shared { *exclusive } else { *any };
        let right = *token >= floor;
        *any = fence.highest.max(*any);
        *exclusive = fence.highest_exclusive.max(*exclusive);
        must(right, "the fence", || format!("{token} passed after {floor}"))
    }

    /// How a session ended, if it did.
    fn ended(&self, session: SessionId) -> Option<EndReason> {
        self.sessions.get(&session)?.1
    }
}

/// Whether two commands are the same request, as far as a client can see.
fn asks_the_same(first: &Command, again: &Command) -> bool {
    let names =
        |acquire: &Acquire| -> BTreeSet<LockName> { acquire.names.iter().cloned().collect() };
    match (first, again) {
        (Command::Acquire(first), Command::Acquire(again)) => {
            names(first) == names(again) && (first.mode, first.lease) == (again.mode, again.lease)
        }
        (Command::Release { target: first, .. }, Command::Release { target: again, .. }) => {
            first == again
        }
        _ => std::mem::discriminant(first) == std::mem::discriminant(again),
    }
}

fn same_request(known: &RequestRef, other: Option<&RequestRef>) -> bool {
    match (known, other) {
        (RequestRef::Alone(known), Some(RequestRef::Alone(key))) => known == key,
        (
            RequestRef::InSession { session: SessionRef { id: known, .. }, id: known_id, .. },
            Some(RequestRef::InSession { session, id, .. }),
        ) => *known == session.id && known_id == id,
        _ => false,
    }
}

/// The named promise is broken unless `right`.
fn must(right: bool, promise: &'static str, what: impl FnOnce() -> String) -> Result<(), Wrong> {
    if right { Ok(()) } else { Err(Wrong { check: promise, what: what() }) }
}
