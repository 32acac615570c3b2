//! Transcript lines: a small language for trying the core by hand and for writing its tests.
//!
//! ```text
//! ana: acquire seat-12A ttl=5s note="paid"
//! bo:  acquire seat-12A
//! tick 5s
//! ```
//!
//! The name before the colon is an actor. Each actor has its own session, opened on first use, and
//! its own secret. [`HELP`] lists the verbs.

mod parse;
mod show;
mod transact;
mod tree;

pub use parse::duration_ms;

use holdfast_core::{
    Answer, Command, Effect, EndReason, Key, Label, Limits, LockName, Names, Numbered, OpenSession,
    Proposal, ProposalOutcome, Refusal, Scope, Secret, SessionId, SessionKind, SessionRef, State,
    Term, Tick, TicketStatus, Token, TreeCommand, TreeWrite, Watches,
};
use parse::{Asked, Parsed, Verb};
use std::collections::BTreeMap;
use transact::Seen;

/// The help text: all verbs and their options.
pub const HELP: &str = "\
ACTOR: acquire NAME... [shared | permits=N] [ttl=5s [unconfirmed] | permanent]
               [wait=3s | try]
               [note=TEXT] [label=TEXT] [claims=TOKEN,TOKEN] [delay=5s]
               [request=ID [lowest=ID] | key=RANDOM-TEXT] [alone]
               [door=redis | door=zookeeper | door=cql]
ACTOR: release NAME          renew NAME ttl=5s     persist NAME      cancel NAME
ACTOR: note NAME TEXT        recovered NAME        upgrade NAME [wait=3s | try]   downgrade NAME
       (the actor's last ticket on NAME; token=N means another, secret=wrong shows a wrong secret,
       by_label=TEXT proves by label, and means the only holder)
ACTOR: outcome request=ID | key=RANDOM-TEXT
ACTOR: open [ttl=10s] [label=TEXT] [node | of=N]   close
       (a node may put number=N behind what it proposes; of=N says which node it is)
ACTOR: revoke NAME within=5s [force] [reason=TEXT] [token=N]
ACTOR: force NAME [reason=TEXT] [token=N]
ACTOR: put KEY VALUE token=N [shared]   raise KEY token=N [shared]   get KEY
ACTOR: look KEY... | look *  read keys, or list all; the next exec counts on what was read
ACTOR: exec [door=cql] WRITE; WRITE; ...           all, or none if what was read has changed
       set KEY VALUE [fresh]       relabel KEY VALUE       del KEY [forced]       expire KEY
       hash KEY FIELD=VALUE .. [fresh]   list KEY ITEM .. [fresh]   publish CHANNEL TEXT
       (each but del and publish with ttl=5s, permanent or keep; set is forever without that,
       the others keep what is left; fresh means that it was deleted on the way)
ACTOR: zk OP; OP; ...        changes znodes, all or none; attach goes on elsewhere
       create PATH [DATA] [ephemeral | container | ttl=5s] [sequential] [read-only]
       delete PATH   set PATH DATA   acl PATH [read-only]   check PATH    (each with version=N)
ACTOR: watch NAME | watch PREFIX*       unwatch NAME | PREFIX*
tick 5s [term=N]             logical time passes
expire ACTOR [term=N]        the leader ends a silent session
nodes [PATH]                 all znodes that begin with it
key NAME   keys [PREFIX] [after=NAME] [limit=N]
show NAME   ls [PREFIX] [after=NAME] [limit=N]   why NAME   history NAME   sessions   counts
snapshot                     write the state, read it back, and go on with that
restore unix=SECONDS         write the state, read it back, and begin a new cluster with that
limits waiters_per_lock=2 .. start over with smaller limits (names, waiters_per_lock, sessions,
                             requests_per_session, session_memory_bytes, deaths, steps,
                             claim_steps, circle_links, history, history_bytes, bytes,
                             bytes_reserve, tickets, objects, object_bytes, object_elements, keys_read,
                             keys_written, published)
";

/// A play: a state, and the actors in it.
#[derive(Debug)]
pub struct Play {
    state: State,
    actors: BTreeMap<String, Actor>,
    owners: BTreeMap<Token, String>,
    watches: Watches<String>,
    term: Term,
    wall_ms: u64,
}

#[derive(Debug, Default)]
struct Actor {
    session: Option<SessionId>,
    /// Its tickets on each name, newest last.
    tickets: BTreeMap<LockName, Vec<Token>>,
    seen: Seen,
}

impl Default for Play {
    fn default() -> Self {
        Self::new(Limits::DEFAULT)
    }
}

impl Play {
    /// Starts with an empty state and these limits.
    pub fn new(limits: Limits) -> Self {
        let mut play = Self {
            state: State::new(limits, 0),
            actors: BTreeMap::new(),
            owners: BTreeMap::new(),
            watches: Watches::default(),
            term: Term(1),
            wall_ms: 0,
        };
        play.tick(0, None);
        play
    }

    /// The current state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Continues with another state, such as one loaded from a snapshot of this one.
    pub fn go_on_with(&mut self, state: State) {
        self.state = state;
    }

    /// Plays one line and returns what happened, or an error line if it can't be parsed.
    pub fn line(&mut self, line: &str) -> Vec<String> {
        match parse::line(line) {
            Ok(None) => Vec::new(),
            Ok(Some(parsed)) => self.play(parsed),
            Err(error) => vec![format!("error: {error}")],
        }
    }

    fn play(&mut self, parsed: Parsed) -> Vec<String> {
        let Parsed { actor, verb } = parsed;
        match verb {
            Verb::Tick { elapsed_ms, term } => self.tick(elapsed_ms, term),
            Verb::Expire { term } => self.expire(&actor, term),
            Verb::Open { ttl_ms, label, kind, number } => {
                self.open(&actor, ttl_ms, label, kind, number)
            }
            Verb::Watch(scope) => self.watch(actor, &scope),
            Verb::Unwatch(scope) => {
                self.watches.remove(&actor, &scope);
                Vec::new()
            }
            Verb::Get(key) => vec![self.get(&actor, &key)],
            Verb::Show(name) => match self.state.key(&name) {
                key @ Key::Object(_) => vec![transact::key(&name, &key, self.state.now_ms())],
                _ => show::lock(self.state.lock_view(&name, 20), &name, &self.state),
            },
            Verb::List { prefix, after, limit } => {
                let page = self.state.list(prefix.as_bytes(), after.as_ref(), limit);
                show::page(&page, &prefix, limit)
            }
            Verb::Why(name) => show::why(&self.state.why(&name)),
            Verb::History(name) => show::history(self.state.history(&name)),
            Verb::Sessions => show::sessions(&self.state.sessions(None, 100, 10)),
            Verb::Counts => vec![show::counts(self.state.counts())],
            Verb::Snapshot => self.reload(),
            Verb::Restore { unix_s } => self.restore(unix_s),
            Verb::Limits(limits) => {
                *self = Self::new(*limits);
                Vec::new()
            }
            Verb::Look(names) => {
                let known = self.actors.entry(actor.clone()).or_default();
                let lines = known.seen.look(&names, &self.state);
                lines.into_iter().map(|line| format!("{actor}: {line}")).collect()
            }
            Verb::Exec(exec) => {
                let transaction = self.actors.entry(actor.clone()).or_default().seen.with(exec);
                self.apply(&actor, Command::Transact(transaction).into())
            }
            Verb::Tree(ops) => self.with_session(&actor, |play, session| {
                let attachment = play.state.attachment(session.id);
                TreeCommand::Write(TreeWrite { session, attachment, ids: Vec::new(), ops })
            }),
            Verb::Attach => self.with_session(&actor, |_, session| TreeCommand::Attach(session)),
            Verb::Nodes(from) => tree::nodes(&self.state, &from),
            Verb::Key(name) => {
                vec![transact::key(&name, &self.state.key(&name), self.state.now_ms())]
            }
            Verb::Keys { prefix, after, limit } => {
                let page = self.state.keys(prefix.as_bytes(), after.as_ref(), limit);
                transact::keys(&page, &prefix, limit)
            }
            Verb::Ask(asked) => self.ask(&actor, *asked),
        }
    }

    fn tick(&mut self, elapsed_ms: u64, term: Option<u64>) -> Vec<String> {
        self.term = term.map_or(self.term, Term);
        self.wall_ms = self.wall_ms.saturating_add(elapsed_ms);
        let tick = Tick { elapsed_ms, wall_ms: self.wall_ms, term: self.term };
        self.apply("leader", Command::Tick(tick).into())
    }

    fn expire(&mut self, actor: &str, term: Option<u64>) -> Vec<String> {
        let Some(session) = self.actors.get(actor).and_then(|actor| actor.session) else {
            return vec![format!("error: {actor} has no session")];
        };
        let decided_in = term.map_or(self.term, Term);
        self.apply("leader", Command::ExpireSession { session, decided_in }.into())
    }

    fn open(
        &mut self,
        actor: &str,
        ttl_ms: u64,
        label: Option<Label>,
        kind: SessionKind,
        number: Option<u64>,
    ) -> Vec<String> {
        let label = label.or_else(|| Label::parse(actor).ok());
        let command =
            Command::OpenSession(OpenSession { secret: secret_of(actor), ttl_ms, label, kind });
        let from = number.and_then(|number| self.numbered(actor, number));
        self.apply(actor, Proposal { from, request: None, command })
    }

    fn watch(&mut self, actor: String, scope: &Scope) -> Vec<String> {
        if self.watches.add(actor.clone(), scope) {
            Vec::new()
        } else {
            vec![format!("{actor}: refused: too many watches on this node")]
        }
    }

    fn get(&self, actor: &str, key: &LockName) -> String {
        match self.state.fence(key) {
            Some(fence) => format!("{actor}: {}", show::fence(key, fence)),
            None => format!("{actor}: {key} was never written"),
        }
    }

    /// Takes a snapshot and continues with the state loaded from it.
    fn reload(&mut self) -> Vec<String> {
        let pieces: Result<Vec<Vec<u8>>, _> = self.state.snapshot().pieces().collect();
        let pieces = match pieces {
            Ok(pieces) => pieces,
            Err(error) => return vec![format!("error: {error}")],
        };
        match State::load(&pieces, *self.state.limits(), 1) {
            Ok(state) => {
                self.state = state;
                vec!["the state was written and read back".to_owned()]
            }
            Err(error) => vec![format!("error: {error}")],
        }
    }

    /// Starts a new cluster from a backup of this one.
    fn restore(&mut self, unix_s: u64) -> Vec<String> {
        self.reload();
        match self.state.restore(unix_s) {
            Ok(restored) => {
                self.watches = Watches::default();
                self.wall_ms = unix_s.saturating_mul(1_000);
                vec![show::restored(&restored)]
            }
            Err(error) => vec![format!("error: {error}")],
        }
    }

    fn numbered(&self, actor: &str, number: u64) -> Option<Numbered> {
        Some(Numbered { session: self.actors.get(actor)?.session?, number })
    }

    fn ask(&mut self, actor: &str, asked: Asked) -> Vec<String> {
        let opened = if asked.needs_session() { self.session_of(actor) } else { Ok(()) };
        if let Err(lines) = opened {
            return lines;
        }
        let known = self.actors.get(actor);
        let session = known.and_then(|known| known.session);
        let session = session.map(|id| SessionRef { id, secret: secret_of(actor) });
        let last = |name: &LockName| {
            let tickets = known?.tickets.get(name)?;
            let stands = |token: &&Token| self.state.ticket_view(**token).is_some();
            tickets.iter().rev().find(stands).or(tickets.last()).copied()
        };
        let from = asked.number.and_then(|number| self.numbered(actor, number));
        match asked.command(actor, session, last) {
            Ok((request, command)) => self.apply(actor, Proposal { from, request, command }),
            Err(error) => vec![format!("error: {error}")],
        }
    }

    /// Runs a command of the tree under an actor's session.
    fn with_session(
        &mut self,
        actor: &str,
        command: impl FnOnce(&Self, SessionRef) -> TreeCommand,
    ) -> Vec<String> {
        if let Err(lines) = self.session_of(actor) {
            return lines;
        }
        let Some(id) = self.actors.get(actor).and_then(|actor| actor.session) else {
            return vec![format!("error: {actor} has no session")];
        };
        let command = command(self, SessionRef { id, secret: secret_of(actor) });
        self.apply(actor, Command::Tree(command).into())
    }

    /// Opens a session for an actor that has none.
    fn session_of(&mut self, actor: &str) -> Result<(), Vec<String>> {
        // A session that has ended stays the actor's, and is refused, until it opens a new one.
        if self.actors.get(actor).is_some_and(|actor| actor.session.is_some()) {
            return Ok(());
        }
        let lines = self.open(actor, 10_000, None, SessionKind::Client, None);
        match self.actors.get(actor).and_then(|actor| actor.session) {
            Some(_) => Ok(()),
            None => Err(lines),
        }
    }

    fn apply(&mut self, actor: &str, proposal: Proposal) -> Vec<String> {
        let opens = matches!(proposal.command, Command::OpenSession(_));
        let mut effects = Vec::new();
        let taken = self.state.apply(proposal, &mut effects);
        let answer = match taken {
            ProposalOutcome::Answered(answer) => answer,
            ProposalOutcome::Seen => return vec![format!("{actor}: seen before, no effect")],
            ProposalOutcome::TooSoon => {
                return vec![format!("{actor}: too soon, a lower number is missing")];
            }
            ProposalOutcome::NodeGone => {
                return vec![format!("{actor}: its node session is gone, no effect")];
            }
        };
        if let (true, Ok(Answer::SessionOpened(id))) = (opens, &answer) {
            self.actors.entry(actor.to_owned()).or_default().session = Some(*id);
        }
        self.note_owner(actor, &answer);
        let mut lines = Vec::new();
        for effect in &effects {
            lines.extend(self.tell(effect));
        }
        lines.extend(self.tell_answer(actor, answer, &effects));
        lines
    }

    /// Remembers whose tickets these are.
    fn note_owner(&mut self, actor: &str, answer: &Result<Answer, Refusal>) {
        let tokens = match answer {
            Ok(Answer::TicketStatus(status)) => vec![status.token()],
            Ok(Answer::Transacted(tokens)) => {
                let new = |token: &Token| !self.owners.contains_key(token);
                tokens.iter().flatten().copied().filter(new).collect()
            }
            _ => return,
        };
        for token in tokens {
            let Some(ticket) = self.state.ticket_view(token) else { continue };
            self.owners.insert(ticket.token, actor.to_owned());
            let actor = self.actors.entry(actor.to_owned()).or_default();
            for name in ticket.names.as_slice() {
                actor.tickets.entry(name.clone()).or_default().push(ticket.token);
            }
        }
    }

    fn owner(&self, token: Token) -> &str {
        self.owners.get(&token).map_or("nobody", String::as_str)
    }

    /// An effect as its owner and the watchers see it.
    fn tell(&mut self, effect: &Effect) -> Vec<String> {
        let mut lines = Vec::new();
        match effect {
            Effect::Granted(grant) => {
                lines.push(format!(
                    "{}: {}",
                    self.owner(grant.token),
                    show::grant("granted", grant)
                ));
            }
            Effect::Ended(ended) => {
                lines.push(format!("{}: {}", self.owner(ended.token), show::ended(ended)));
            }
            Effect::RevocationAsked { token, .. } => {
                lines.push(format!("{}: {}", self.owner(*token), show::effect(effect)));
            }
            Effect::Delayed { name, .. } => {
                for waiter in
                    self.state.lock_view(name, 20).into_iter().flat_map(|lock| lock.waiters)
                {
                    lines.push(format!("{}: {}", self.owner(waiter.token), show::effect(effect)));
                }
            }
            Effect::SessionEnded { session, how } => {
                let is_it = |(_, actor): &(&String, &Actor)| actor.session == Some(*session);
                let actor = self.actors.iter().find(is_it);
                let actor = actor.map_or_else(|| session.to_string(), |(name, _)| name.clone());
                let how = if *how == EndReason::Closed { "closed" } else { "expired" };
                lines.push(format!("{actor}: session {how}"));
            }
            Effect::Noted { .. }
            | Effect::Downgraded { .. }
            | Effect::Recovered { .. }
            | Effect::AccessChanged(_)
            | Effect::Audited(_) => {}
            Effect::Relabelled { .. } | Effect::ObjectChanged { .. } | Effect::Published { .. } => {
                lines.extend(transact::effect(effect))
            }
            Effect::NodeChanged { .. } | Effect::SessionAttached { .. } => {
                lines.extend(tree::effect(effect));
            }
        }
        for watcher in self.watches.watchers_of(effect) {
            lines.push(format!("{watcher}: event {}", show::effect(effect)));
        }
        lines
    }

    /// An answer, unless an effect has already shown it.
    fn tell_answer(
        &self,
        actor: &str,
        answer: Result<Answer, Refusal>,
        effects: &[Effect],
    ) -> Option<String> {
        let told = |token: Token| {
            effects.iter().any(|effect| match effect {
                Effect::Granted(grant) => grant.token == token,
                Effect::Ended(ended) => ended.token == token,
                _ => false,
            })
        };
        let text = match answer {
            Err(refusal) => format!("refused: {refusal}"),
            Ok(Answer::Ticked) => return None,
            Ok(Answer::SessionEnded(_)) => return None,
            Ok(Answer::Forced(_)) if !effects.is_empty() => return None,
            Ok(Answer::Released(token) | Answer::Cancelled(token)) if told(token) => return None,
            Ok(Answer::TicketStatus(TicketStatus::Held(grant))) if told(grant.token) => {
                return None;
            }
            Ok(Answer::TicketStatus(status)) => {
                let names = self.state.ticket_view(status.token()).map(|ticket| ticket.names);
                show::ticket_status(&status, names.as_ref().map_or(&[][..], Names::as_slice))
            }
            Ok(answer) => show::answer(&answer),
        };
        Some(format!("{actor}: {text}"))
    }
}

/// A secret that differs from actor to actor. The core never draws random ones itself.
fn secret_of(actor: &str) -> Secret {
    let mut secret = [0; 16];
    for (place, byte) in secret.iter_mut().zip(actor.bytes()) {
        *place = byte;
    }
    Secret(secret)
}
