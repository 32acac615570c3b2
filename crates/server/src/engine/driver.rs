//! The loop's thread: takes what happened, lets the node decide, does what comes out.

use super::TIMEOUT;
use super::asked::{Asker, Listeners, Told, Trouble, Turn, Turns};
use super::disk::Job;
use super::errand::{Errand, Next, Now, Sleepers};
use super::inbox::{End, Inbox, Look, Post};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::redis::Channels;
use holdfast_core::{Answer, Command, Effect, KeyKind, LockName, Proof, Standing, Target};
use holdfast_node::{Ask, Busy, Input, Moment, Node, Output, Reply, SnapshotTask};
use slab::Slab;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// So often the loop looks for requests whose callers are gone or have waited long enough.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// Something due at once that waits for the disk must not spin.
const PAUSE_MIN: Duration = Duration::from_millis(1);

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
        own: Option<Own>,
        since: Instant,
        until: Option<Instant>,
    },
    /// A heartbeat.
    Beat(Asker, Instant),
    /// A change of membership.
    Change(Asker),
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
            Self::Beat(asker, since) => {
                asker.hung_up() || matches!(asker, Asker::One { .. }) && timed_out(since)
            }
            Self::Look(_, since) => timed_out(since),
            Self::Errand { errand, since, withdrawn, .. } => {
                !withdrawn && (errand.nobody_waits() || timed_out(since))
            }
            Self::Change(_) => false,
        }
    }

    /// It is withdrawn, and the node could not say that it has no effect: whoever waits is told
    /// so. What becomes of it is known later; then a ticket that nobody wants is given up.
    fn leave(&mut self) {
        match self {
            Self::Ask { asker, until, .. } => {
                *until = None;
                let left = std::mem::replace(asker, Asker::Nobody);
                if let Asker::One { told, .. } = left {
                    let _ = told.send(Told { reply: Reply::Unknown, turn: None });
                }
            }
            Self::Errand { withdrawn, .. } => *withdrawn = true,
            Self::Beat(..) | Self::Change(_) | Self::Look(..) => {}
        }
    }
}

/// For which name an errand was woken, and its place among those that sleep.
type Woken = Option<(LockName, u64)>;

/// What it takes to give up a ticket that nobody wants any more.
struct Own {
    target: Target,
    proof: Proof,
}

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
        loop {
            let pause = Duration::from_millis(self.node.next_turn_in_ms()).max(PAUSE_MIN);
            let pause = if self.asked.is_empty() { pause } else { Duration::ZERO };
            self.inbox.take(&mut posts, pause);
            for post in posts.drain(..) {
                inputs.extend(self.open(post));
            }
            inputs.append(&mut self.asked);
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
                let sole = matches!(asker, Asker::One { sole: true, .. });
                let own = sole.then(|| own_of(&command)).flatten();
                let since = Instant::now();
                let ask = self.wait(Pending::Ask { asker, own, since, until });
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
            Post::WaitFor { token, turn } => {
                let waits = self.node.state().ticket_view(token).is_some_and(|view| !view.held);
                if waits {
                    let _ = turn.send(self.turns.wait_for(token));
                }
                return None;
            }
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
        }
    }

    fn hand_to_disk(&mut self, job: Job) {
        // If its thread has ended, it has said why.
        let _ = self.disk.send(job);
    }

    fn reply(&mut self, ask: Ask, reply: Reply) {
        let key = usize::try_from(ask.0).unwrap_or(usize::MAX);
        match self.pending.try_remove(key) {
            Some(Pending::Ask { asker, own, since, .. }) => {
                self.metrics.answers.observe(since.elapsed().as_secs_f64());
                self.answer(asker, own, reply);
            }
            Some(Pending::Beat(asker, _) | Pending::Change(asker)) => {
                self.answer(asker, None, reply);
            }
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

    fn answer(&mut self, asker: Asker, own: Option<Own>, reply: Reply) {
        let told = match asker {
            Asker::One { told, .. } => told,
            Asker::Line { line, number } => return self.listeners.answer(&line, number, reply),
            Asker::Nobody => {
                if let (Reply::Answer(Ok(Answer::Standing(standing))), Some(own)) = (reply, own) {
                    self.give_up(own, standing);
                }
                return;
            }
        };
        let waiting = match &reply {
            Reply::Answer(Ok(Answer::Standing(Standing::Waiting { token, .. }))) => Some(*token),
            _ => None,
        };
        let turn = waiting.map(|token| self.turns.wait_for(token));
        let unheard = told.send(Told { reply, turn });
        if let (Err(Told { reply: Reply::Answer(Ok(Answer::Standing(standing))), .. }), Some(own)) =
            (unheard, own)
        {
            self.give_up(own, standing);
        }
    }

    /// The connection that asked is gone, and nobody else can know of the ticket.
    fn give_up(&mut self, own: Own, standing: Standing) {
        let Own { mut target, proof } = own;
        target.token = Some(standing.token());
        let command = match standing {
            Standing::Waiting { .. } => Command::Cancel { target, proof },
            Standing::Held(_) => Command::Release { target, proof },
            Standing::Over { .. } => return,
        };
        // If there is no room for it, its deadline ends it.
        let _ = self.inbox.post(Post::Ask {
            request: None,
            command,
            asker: Asker::Nobody,
            until: None,
        });
    }

    fn hear(&mut self, effect: Effect) {
        self.metrics.hear(&effect);
        match &effect {
            Effect::Granted(grant) => {
                self.turns.tell(grant.token, || Turn::Granted(Box::new(grant.clone())));
            }
            Effect::Ended(ended) if !ended.held => {
                self.turns.tell(ended.token, || Turn::Ended(Box::new(ended.clone())));
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

pub(crate) fn trouble(reply: &Reply) -> Trouble {
    match reply {
        Reply::Busy(Busy::QueueFull) => Trouble::QueueFull,
        Reply::Busy(Busy::DiskFull) => Trouble::DiskFull,
        Reply::Busy(Busy::OlderMember) => Trouble::OlderMember,
        Reply::Busy(Busy::TooLarge) => Trouble::TooLarge,
        Reply::Withdrawn => Trouble::Withdrawn,
        _ => Trouble::Unknown,
    }
}

fn own_of(command: &Command) -> Option<Own> {
    let Command::Acquire(acquire) = command else { return None };
    let target = Target { name: acquire.names.first()?.clone(), token: None };
    let proof = match (acquire.secret, &acquire.label) {
        (Some(secret), _) => Proof::Secret(secret),
        (None, Some(label)) => Proof::Label(label.clone()),
        (None, None) => return None,
    };
    Some(Own { target, proof })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
