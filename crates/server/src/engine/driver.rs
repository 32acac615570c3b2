//! The loop's thread: takes what happened, lets the node decide, does what comes out.

use super::TIMEOUT;
use super::asked::{Asker, Listeners, Told, Turn, Turns, Word};
use super::disk::Job;
use super::errand::{Errand, Next, Now, Sleepers};
use super::inbox::{End, Inbox, Look, Post};
use super::undelivered::{Retries, TicketRef, Undelivered};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::redis::Channels;
use holdfast_core::{
    Answer, Command, Effect, Grant, KeyKind, Lease, LockName, Proof, Refusal, Standing, Target,
};
use holdfast_gateway::SubmitError;
use holdfast_node::{Ask, Busy, Input, Moment, Node, Output, Reply, SnapshotTask};
use slab::Slab;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// So often the loop looks for requests whose callers are gone or have waited long enough.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// A loop that stood still for so long finds requests in front of it that their callers have given
/// up meanwhile; the word of that comes just behind them.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// So long requests are held back then, until it is known who still waits.
const HELD_BACK: Duration = Duration::from_millis(250);

/// Something due at once that waits for the disk must not spin.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// How long to wait before the node is asked again to end an abandoned ticket.
const RETRY_AFTER: Duration = Duration::from_millis(200);

pub(crate) struct Driver {
    node: Node,
    inbox: Arc<Inbox>,
    disk: Sender<Job>,
    snapshots: Sender<Box<SnapshotTask>>,
    peers: Peers,
    pending: Slab<Pending>,
    turns: Turns,
    listeners: Listeners,
    channels: Arc<Channels>,
    sleepers: Sleepers,
    /// Abandoned tickets that are still to be given up, and when that is tried again.
    retries: Retries,
    /// Grants that are still to be confirmed: the node could not take that yet.
    #[expect(clippy::vec_box, reason = "they come from `Pending` and go back to it, boxed")]
    unconfirmed: Vec<Box<Grant>>,
    retry_at: Instant,
    /// Requests that came just after this loop stood still, and until when they are held back.
    held_back: Vec<Post>,
    held_back_until: Option<Instant>,
    /// Errands that were replied to: they go on when all effects of the turn were heard, so that
    /// nobody is told of a message that is still on its way.
    told: Vec<(Box<dyn Errand>, Reply, Woken)>,
    /// Names under which something was put that an errand may wait for.
    stirred: Vec<LockName>,
    /// What errands ask of the node, for its next turn.
    asked: Vec<Input>,
    metrics: Arc<Metrics>,
    begun: Instant,
    end: Option<End>,
}

/// Who waits for a reply of the node.
enum Pending {
    /// A request for the log.
    Ask {
        asker: Asker,
        since: Instant,
        until: Option<Instant>,
    },
    /// A heartbeat.
    Beat(Asker, Instant),
    /// A change of membership.
    Change(Asker),
    /// The end of a ticket that nobody knows of any more.
    Abandoned(TicketRef),
    /// Of a grant that somebody here waits for: its deadline begins to count.
    Confirmed(Box<Grant>),
    Look(Look, Instant),
    Errand {
        errand: Box<dyn Errand>,
        woken: Woken,
        since: Instant,
        withdrawn: bool,
    },
}

impl Pending {
    /// Whether nobody wants to wait for it any longer.
    fn is_over(&self, now: Instant) -> bool {
        let timed_out = |since: &Instant| now.saturating_duration_since(*since) >= TIMEOUT;
        match self {
            Self::Ask { asker, until, .. } => {
                asker.hung_up() || until.is_some_and(|until| until <= now)
            }
            Self::Beat(asker, since) => asker.hung_up() || timed_out(since),
            Self::Look(_, since) => timed_out(since),
            Self::Errand { errand, since, withdrawn, .. } => {
                !withdrawn && (errand.nobody_waits() || timed_out(since))
            }
            Self::Change(_) | Self::Abandoned(_) | Self::Confirmed(_) => false,
        }
    }

    /// It is withdrawn, and the node could not say that it has no effect: whoever waits is told
    /// so. What becomes of it is known later; then a ticket that nobody wants is given up.
    fn leave(&mut self) {
        match self {
            Self::Ask { asker, until, .. } => {
                *until = None;
                let left = std::mem::replace(asker, Asker::Nobody { draws: None });
                match left {
                    Asker::One { told, draws } => {
                        *asker = Asker::Nobody { draws };
                        let reply = Reply::Unknown;
                        let _ = told.send(Told { reply, turn: None, undelivered: None });
                    }
                    // Its client asks again under the same number.
                    Asker::Line { line, number } => {
                        line.say(Word::Reply { number, reply: Reply::Unknown });
                    }
                    Asker::Nobody { .. } => {}
                }
            }
            Self::Errand { withdrawn, .. } => *withdrawn = true,
            Self::Beat(..)
            | Self::Change(_)
            | Self::Abandoned(_)
            | Self::Confirmed(_)
            | Self::Look(..) => {}
        }
    }
}

/// For which name an errand was woken, and its place among those that sleep.
type Woken = Option<(LockName, u64)>;

impl Driver {
    pub(crate) fn new(
        node: Node,
        inbox: Arc<Inbox>,
        disk: Sender<Job>,
        snapshots: Sender<Box<SnapshotTask>>,
        mut peers: Peers,
        channels: Arc<Channels>,
        metrics: Arc<Metrics>,
    ) -> Self {
        peers.know(node.cluster());
        Self {
            node,
            inbox,
            disk,
            snapshots,
            peers,
            pending: Slab::new(),
            turns: Turns::default(),
            listeners: Listeners::default(),
            channels,
            sleepers: Sleepers::default(),
            retries: Retries::default(),
            unconfirmed: Vec::new(),
            retry_at: Instant::now(),
            held_back: Vec::new(),
            held_back_until: None,
            told: Vec::new(),
            stirred: Vec::new(),
            asked: Vec::new(),
            metrics,
            begun: Instant::now(),
            end: None,
        }
    }

    pub(crate) fn run(mut self) -> End {
        let mut posts = Vec::new();
        let mut inputs = Vec::new();
        let mut outputs = Vec::new();
        let mut swept = Instant::now();
        let mut awake = Instant::now();
        loop {
            let pause = Duration::from_millis(self.node.next_turn_in_ms()).max(PAUSE_MIN);
            let pause = if self.asked.is_empty() { pause } else { Duration::ZERO };
            let retries = !self.retries.is_empty() || !self.unconfirmed.is_empty();
            let pause = if retries { pause.min(RETRY_AFTER) } else { pause };
            let pause = if self.held_back_until.is_none() { pause } else { pause.min(HELD_BACK) };
            self.inbox.take(&mut posts, pause);
            let now = Instant::now();
            if now.duration_since(awake) > pause + STOOD_STILL {
                self.held_back_until = Some(now + HELD_BACK);
            }
            awake = now;
            self.hold_back(&mut posts, now);
            for post in posts.drain(..) {
                inputs.extend(self.open(post));
            }
            inputs.append(&mut self.asked);
            if retries && Instant::now() >= self.retry_at {
                for ticket in self.retries.take() {
                    inputs.push(self.abandon(ticket));
                }
                for grant in std::mem::take(&mut self.unconfirmed) {
                    inputs.extend(self.confirm(grant));
                }
            }
            let begun = Instant::now();
            let withdrawn = if begun.duration_since(swept) >= SWEEP_EVERY {
                swept = begun;
                self.over(begun)
            } else {
                Vec::new()
            };
            inputs.extend(withdrawn.iter().map(|key| Input::Withdraw(Ask(*key as u64))));
            self.node.turn(self.moment(), inputs.drain(..), &mut outputs);
            let applied = outputs.iter().any(|output| matches!(output, Output::Applied { .. }));
            for output in outputs.drain(..) {
                self.act(output);
            }
            for key in withdrawn {
                // Its place may have been taken by another one meanwhile.
                if let Some(pending) = self.pending.get_mut(key).filter(|p| p.is_over(begun)) {
                    pending.leave();
                }
            }
            self.peers.flush();
            let mut told = std::mem::take(&mut self.told);
            for (errand, reply, woken) in told.drain(..) {
                self.go_on(errand, Now::Told(reply), woken);
            }
            self.told = told;
            while let Some(name) = self.stirred.pop() {
                self.stir(name);
            }
            let took = begun.elapsed().as_secs_f64();
            self.metrics.turn.observe(took);
            if applied {
                self.metrics.apply.observe(took);
            }
            if let Some(end) = self.end.take() {
                self.inbox.close();
                return end;
            }
        }
    }

    /// Keeps requests back while it is not known who still waits for them; then drops those that
    /// nobody waits for.
    fn hold_back(&mut self, posts: &mut Vec<Post>, now: Instant) {
        match self.held_back_until {
            None => {}
            Some(until) if now < until => {
                let kept = posts.extract_if(.., |post| post.is_request());
                self.held_back.extend(kept);
            }
            Some(_) => {
                self.held_back_until = None;
                let wanted = self.held_back.drain(..).filter(|post| !post.is_given_up());
                // They came before.
                posts.splice(0..0, wanted);
            }
        }
    }

    /// What nobody wants to wait for any longer.
    fn over(&self, now: Instant) -> Vec<usize> {
        let over = self.pending.iter().filter(|(_, pending)| pending.is_over(now));
        over.map(|(key, _)| key).collect()
    }

    fn moment(&self) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { mono_ms: millis(self.begun.elapsed()), wall_ms: millis(wall) }
    }

    /// What a post means for the node.
    fn open(&mut self, post: Post) -> Option<Input> {
        Some(match post {
            Post::Input(input) => input,
            Post::Ask { request, command, asker, until } => {
                self.metrics.requests.inc();
                let ask = self.wait(Pending::Ask { asker, since: Instant::now(), until });
                Input::Ask { ask, request, command }
            }
            Post::Beat { session, asker } => {
                Input::Beat { ask: self.wait(Pending::Beat(asker, Instant::now())), session }
            }
            Post::Listen { session, line } => {
                self.listeners.add(session, line);
                return None;
            }
            Post::Unlisten { session, line } => {
                self.listeners.remove(session, &line);
                return None;
            }
            Post::Watch { watch, scope, line, stands } => {
                let added = self.listeners.watch(watch, scope, line);
                if stands.send(added).is_err() {
                    self.listeners.unwatch(watch);
                }
                return None;
            }
            Post::Unwatch(watch) => {
                self.listeners.unwatch(watch);
                return None;
            }
            Post::Read(look) => Input::Read(self.wait(Pending::Look(look, Instant::now()))),
            Post::Peek(look) => {
                look(Ok(&self.node));
                return None;
            }
            Post::Errand(errand) => {
                self.go_on(errand, Now::Begun, None);
                return None;
            }
            Post::GiveUp(number) => {
                if let Some(errand) = self.sleepers.find(number) {
                    self.go_on(errand, Now::GivenUp, None);
                }
                return None;
            }
            Post::Abandon(ticket) => self.abandon(ticket),
            Post::Change { change, force, asker } => {
                Input::Change { ask: self.wait(Pending::Change(asker)), change, force }
            }
            Post::Stop(end) => {
                self.end = Some(end);
                return None;
            }
        })
    }

    fn wait(&mut self, pending: Pending) -> Ask {
        Ask(self.pending.insert(pending) as u64)
    }

    fn wait_for_errand(&mut self, errand: Box<dyn Errand>, woken: Woken) -> Ask {
        self.wait(Pending::Errand { errand, woken, since: Instant::now(), withdrawn: false })
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Send { to, message } => self.peers.send(to, &message),
            Output::OfferSnapshot { to, message } => self.peers.offer_snapshot(to, message),
            Output::Persist(persist) => self.hand_to_disk(Job::Persist(persist)),
            Output::Compact(at) => self.hand_to_disk(Job::Compact(at)),
            Output::WriteSnapshot(task) => {
                // Its thread ends only after this one.
                let _ = self.snapshots.send(task);
            }
            Output::Reply { ask, reply } => self.reply(ask, reply),
            Output::Applied { effects, .. } => {
                self.metrics.entries.inc();
                for effect in effects {
                    self.hear(effect);
                }
                self.listeners.entry_done();
                self.peers.know(self.node.cluster());
            }
            Output::LostTrack => {
                self.peers.know(self.node.cluster());
                self.turns.lose_track();
                self.listeners.lose_track();
                self.channels.lose_track();
                let asleep: Vec<_> = std::iter::from_fn(|| self.sleepers.wake_any()).collect();
                for (errand, names, place) in asleep {
                    let woken = names.first().map(|name| (name.clone(), place));
                    self.go_on(errand, Now::Woken, woken);
                }
            }
            Output::Stop(why) => self.end = Some(End::Fault(why)),
            Output::Lost(why) => self.end = Some(End::Lost { why, may_rejoin: true }),
        }
    }

    fn hand_to_disk(&mut self, job: Job) {
        // If its thread has ended, it has said why.
        let _ = self.disk.send(job);
    }

    fn reply(&mut self, ask: Ask, reply: Reply) {
        let key = usize::try_from(ask.0).unwrap_or(usize::MAX);
        match self.pending.try_remove(key) {
            Some(Pending::Ask { asker, since, .. }) => {
                self.metrics.answers.observe(since.elapsed().as_secs_f64());
                self.answer(asker, reply);
            }
            Some(Pending::Beat(asker, _) | Pending::Change(asker)) => self.answer(asker, reply),
            Some(Pending::Abandoned(ticket)) => self.abandoned(ticket, &reply),
            Some(Pending::Confirmed(grant)) => self.confirmed(grant, &reply),
            Some(Pending::Errand { errand, woken, since, .. }) => {
                if matches!(reply, Reply::Answer(_)) {
                    self.metrics.answers.observe(since.elapsed().as_secs_f64());
                }
                self.told.push((errand, reply, woken));
            }
            Some(Pending::Look(look, _)) => look(match reply {
                Reply::Current => Ok(&self.node),
                reply => Err(trouble(&reply)),
            }),
            None => {}
        }
    }

    /// Lets an errand do its next step.
    fn go_on(&mut self, errand: Box<dyn Errand>, now: Now, woken: Woken) {
        match errand.step(&self.node, now) {
            Next::Ask(errand, command) => {
                self.metrics.requests.inc();
                let ask = self.wait_for_errand(errand, woken);
                self.asked.push(Input::Ask { ask, request: None, command });
            }
            Next::Read(errand) => {
                let ask = self.wait_for_errand(errand, woken);
                self.asked.push(Input::Read(ask));
            }
            Next::Sleep(errand, names) => {
                let place = woken.map(|(_, place)| place);
                if let Err(errand) = self.sleepers.put(errand, names, place) {
                    // It ends with this.
                    let _ = errand.step(&self.node, Now::NoRoom);
                }
            }
            Next::Over => self.stirred.extend(woken.map(|(name, _)| name)),
        }
    }

    /// Something stands under a name: the errand that has waited longest for it may take it. What
    /// it leaves is for the next one.
    fn stir(&mut self, name: LockName) {
        if let Some((errand, place)) = self.sleepers.wake(&name) {
            self.go_on(errand, Now::Woken, Some((name, place)));
        }
    }

    fn answer(&mut self, asker: Asker, reply: Reply) {
        let (told, draws) = match asker {
            Asker::One { told, draws } => (Some(told), draws),
            Asker::Nobody { draws } => (None, draws),
            Asker::Line { line, number } => return self.listeners.answer(&line, number, reply),
        };
        let (token, waits) = match &reply {
            Reply::Answer(Ok(Answer::Standing(standing))) => {
                let over = matches!(standing, Standing::Over { .. });
                let waits = matches!(standing, Standing::Waiting { .. });
                (Some(standing.token()).filter(|_| !over), waits)
            }
            _ => (None, false),
        };
        let undelivered = draws.zip(token).map(|(mut ticket, token)| {
            ticket.target.token = Some(token);
            Undelivered::new(ticket, &self.inbox)
        });
        // If nobody gets this, it is dropped, and with it the ticket is given up.
        let Some(told) = told else { return };
        let turn = token.filter(|_| waits).map(|token| self.turns.wait_for(token));
        let _ = told.send(Told { reply, turn, undelivered });
    }

    /// Ends a ticket that nobody knows of any more.
    fn abandon(&mut self, ticket: TicketRef) -> Input {
        let view = ticket.target.token.and_then(|token| self.node.state().ticket_view(token));
        let held = view.is_some_and(|view| view.held);
        let command =
            if held && ticket.release_if_served { ticket.release() } else { ticket.cancel() };
        Input::Ask { ask: self.wait(Pending::Abandoned(ticket)), request: None, command }
    }

    /// Whether an abandoned ticket is over now; if it is not, that is tried again.
    fn abandoned(&mut self, ticket: TicketRef, reply: &Reply) {
        let again = match reply {
            // Its turn came before the cancel did.
            Reply::Answer(Err(Refusal::AlreadyServed(_))) => ticket.release_if_served,
            Reply::Answer(_) => false,
            // Nobody can tell, or nothing could be taken: the same has no second effect.
            _ => true,
        };
        if again {
            self.retries.add(ticket);
            let later =
                if matches!(reply, Reply::Answer(_)) { Duration::ZERO } else { RETRY_AFTER };
            self.retry_at = Instant::now() + later;
        }
    }

    /// Lets the deadline of a grant begin to count, if somebody here waits for it. Only then is that
    /// somebody told: what was promised must not end with this process. A grant that is not confirmed
    /// ends with the session of this node.
    fn confirm(&mut self, grant: Box<Grant>) -> Option<Input> {
        let Lease::Unconfirmed { ttl_ms } = grant.lease else { return None };
        let session = self.node.own_session().filter(|own| Some(own.id) == grant.session)?;
        if !self.turns.is_awaited(grant.token) {
            return None;
        }
        let target =
            Target { name: grant.names.as_slice().first()?.clone(), token: Some(grant.token) };
        let command = Command::Renew { target, proof: Proof::Secret(session.secret), ttl_ms };
        Some(Input::Ask { ask: self.wait(Pending::Confirmed(grant)), request: None, command })
    }

    /// Tells whoever waits for a grant, or tries again to confirm it.
    fn confirmed(&mut self, mut grant: Box<Grant>, reply: &Reply) {
        match (reply, grant.lease) {
            (Reply::Answer(Ok(_)), Lease::Unconfirmed { ttl_ms }) => {
                grant.lease = Lease::Deadline { ttl_ms };
                self.turns.tell(grant.token, || Turn::Granted(grant.clone()));
            }
            // It has ended before, and whoever waits was told so with its end.
            (Reply::Answer(_), _) => {}
            // Nobody can tell, or nothing could be taken: the same has no second effect.
            _ => {
                self.unconfirmed.push(grant);
                self.retry_at = Instant::now() + RETRY_AFTER;
            }
        }
    }

    fn hear(&mut self, effect: Effect) {
        self.metrics.hear(&effect);
        match &effect {
            Effect::Granted(grant) if matches!(grant.lease, Lease::Unconfirmed { .. }) => {
                let confirm = self.confirm(Box::new(grant.clone()));
                self.asked.extend(confirm);
            }
            Effect::Granted(grant) => {
                self.turns.tell(grant.token, || Turn::Granted(Box::new(grant.clone())));
            }
            Effect::Ended(ended) => {
                // Also the end of a grant that was never confirmed: nobody has been told of it.
                self.turns.tell(ended.token, || Turn::Ended(Box::new(ended.clone())));
                if ended.held {
                    self.channels.ended(ended);
                }
            }
            Effect::ObjectChanged { name, now: Some(KeyKind::List), .. } if self.sleepers.any() => {
                self.stirred.push(name.clone());
            }
            Effect::Published { channel, message } => self.channels.say(channel, message),
            _ => {}
        }
        self.listeners.hear(effect, self.node.state().now_ms());
    }
}

pub(crate) fn trouble(reply: &Reply) -> SubmitError {
    match reply {
        Reply::Busy(Busy::QueueFull) => SubmitError::QueueFull,
        Reply::Busy(Busy::DiskFull) => SubmitError::DiskFull,
        Reply::Busy(Busy::OlderMember) => SubmitError::OlderMember,
        Reply::Busy(Busy::TooLarge) => SubmitError::TooLarge,
        Reply::Withdrawn => SubmitError::Withdrawn,
        _ => SubmitError::Unknown,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
