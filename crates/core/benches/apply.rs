//! The cost of applying a command.
//!
//! Every state here has been running for a while (the history is full). Creating it and the
//! commands is not timed. Where a benchmark times single commands, its column "slowest" is the
//! longest one.
//!
//! `cargo bench -p holdfast-core --bench apply [-- FILTER]`

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a measuring program needs a clock"
)]

#[path = "../examples/shared/mod.rs"]
mod shared;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {
    divan::main();
}

/// Acquire and release of an uncontended name, with this many other locks held.
mod pair {
    use super::shared::{
        LONG_MS, SECRET, World, acquire, acquire_in, answer, granted, in_session, release,
    };
    use divan::Bencher;
    use divan::counter::ItemsCount;
    use holdfast_core::{Acquire, Command, Lease, LockName, Proposal};
    use std::cell::RefCell;

    const HELD: [usize; 3] = [1, 1_000, 1_000_000];

    #[divan::bench(args = HELD, sample_count = 500, sample_size = 1_000)]
    fn plain(bencher: Bencher, held: usize) {
        let world = RefCell::new(World::with_held(held));
        let make = || {
            let name = world.borrow_mut().fresh_name();
            (name.clone(), Proposal::from(Command::Acquire(acquire(name))))
        };
        bencher.counter(ItemsCount::new(2_u32)).with_inputs(make).bench_local_values(
            |(name, proposal)| {
                let world = &mut *world.borrow_mut();
                let token = granted(answer(world.apply(proposal))).token;
                let taken = world.apply(release(name, token, SECRET).into());
                world.effects.clear();
                taken
            },
        );
    }

    /// The same from a client with a session, with a request id on every command.
    #[divan::bench(args = HELD, sample_count = 500, sample_size = 1_000)]
    fn in_a_session(bencher: Bencher, held: usize) {
        let mut world = World::with_held(held);
        let session = world.open_session(None);
        let world = RefCell::new((world, 0));
        let make = || {
            let (world, id) = &mut *world.borrow_mut();
            let name = world.fresh_name();
            *id += 2;
            let proposal = Command::Acquire(acquire_in(session, name.clone()));
            (name, *id, in_session(session, *id - 1, proposal))
        };
        bencher.counter(ItemsCount::new(2_u32)).with_inputs(make).bench_local_values(
            |(name, id, proposal)| {
                let (world, _) = &mut *world.borrow_mut();
                let token = granted(answer(world.apply(proposal))).token;
                let release = release(name, token, SECRET);
                let taken = world.apply(in_session(session, id, release));
                world.effects.clear();
                taken
            },
        );
    }

    /// Adds a lock and removes an old one: both are scattered in memory, whereas the plain pair
    /// reuses the same slots.
    #[divan::bench(args = HELD, sample_count = 500, sample_size = 1_000)]
    fn new_comes_old_goes(bencher: Bencher, held: usize) {
        let mut world = World::with_held(0);
        let mut locks = world.hold(held);
        let world = RefCell::new(world);
        let make = || {
            let name: LockName = world.borrow_mut().fresh_name();
            let lease = Lease::Deadline { ttl_ms: LONG_MS };
            let acquire = Acquire { lease, ..acquire(name.clone()) };
            (name, Proposal::from(Command::Acquire(acquire)))
        };
        let mut stride = 0_usize;
        bencher.counter(ItemsCount::new(2_u32)).with_inputs(make).bench_local_values(
            |(name, proposal)| {
                let world = &mut *world.borrow_mut();
                let token = granted(answer(world.apply(proposal))).token;
                // A step without a common factor with the number of locks reaches all of them.
                stride = (stride + 611_953) % held;
                let (name, token) = std::mem::replace(&mut locks[stride], (name, token));
                let taken = world.apply(release(name, token, SECRET).into());
                world.effects.clear();
                taken
            },
        );
    }
}

/// One lock with this many waiters.
mod line {
    use super::shared::{SECRET, World, acquire_in, granted, release};
    use divan::Bencher;
    use divan::counter::ItemsCount;
    use holdfast_core::{Answer, Command, LockName, Proposal, SessionRef, Token};
    use std::cell::RefCell;
    use std::collections::VecDeque;

    const WAITERS: [usize; 2] = [10, 100_000];

    /// Commands per sample: few enough that they hardly change the length of the short line.
    const SAMPLE: u32 = 5;

    struct Line {
        world: World,
        name: LockName,
        sessions: Vec<SessionRef>,
        tokens: VecDeque<Token>,
        joined: usize,
    }

    impl Line {
        fn of(waiters: usize) -> Self {
            let mut world = World::with_held(1_000);
            let sessions = world.open_sessions(100);
            let name = world.fresh_name();
            let first = world.run(Command::Acquire(acquire_in(sessions[0], name.clone())));
            let tokens = VecDeque::from([granted(first).token]);
            let mut line = Self { world, name, sessions, tokens, joined: 0 };
            for _ in 0..waiters {
                line.join();
            }
            line
        }

        fn acquire(&mut self) -> Command {
            self.joined += 1;
            let session = self.sessions[self.joined % self.sessions.len()];
            Command::Acquire(acquire_in(session, self.name.clone()))
        }

        fn join(&mut self) {
            let Command::Acquire(acquire) = self.acquire() else { return };
            let token = self.world.wait(acquire);
            self.tokens.push_back(token);
        }

        fn release(&mut self) -> Command {
            let holder = self.tokens.pop_front().expect("somebody holds it");
            release(self.name.clone(), holder, SECRET)
        }
    }

    /// The holder releases, and the next ticket is served. Another one joins, untimed.
    #[divan::bench(args = WAITERS, sample_count = 20_000, sample_size = SAMPLE)]
    fn hand_off(bencher: Bencher, waiters: usize) {
        let line = RefCell::new(Line::of(waiters));
        let make = || {
            let line = &mut *line.borrow_mut();
            line.join();
            Proposal::from(line.release())
        };
        bencher.counter(ItemsCount::new(1_u32)).with_inputs(make).bench_local_values(|proposal| {
            let world = &mut line.borrow_mut().world;
            let taken = world.apply(proposal);
            world.effects.clear();
            taken
        });
    }

    /// Another ticket joins at the end. The holder releases, untimed.
    #[divan::bench(args = WAITERS, sample_count = 20_000, sample_size = SAMPLE)]
    fn join_at_the_end(bencher: Bencher, waiters: usize) {
        let line = RefCell::new(Line::of(waiters));
        let make = || {
            let line = &mut *line.borrow_mut();
            let release = line.release();
            line.world.run(release);
            Proposal::from(line.acquire())
        };
        bencher.counter(ItemsCount::new(1_u32)).with_inputs(make).bench_local_values(|proposal| {
            let Line { world, tokens, .. } = &mut *line.borrow_mut();
            let answer = super::shared::answer(world.apply(proposal));
            world.effects.clear();
            if let Answer::TicketStatus(holdfast_core::TicketStatus::Waiting { token, .. }) =
                &answer
            {
                tokens.push_back(*token);
            }
            answer
        });
    }
}

/// A hundred thousand deaths at once. Each command is timed separately; its effects are dropped
/// untimed, as another thread would do in a server.
mod mass_expiry {
    use super::shared::{LONG_MS, World, acquire, acquire_in, tick};
    use divan::Bencher;
    use divan::counter::ItemsCount;
    use holdfast_core::{Acquire, Command, Lease, Limits, Proposal, SessionRef, Term};
    use std::cell::RefCell;

    const TICKETS: usize = 100_000;

    /// Ticks with as much work due as one command may do.
    const FULL_TICKS: u32 = (TICKETS / Limits::DEFAULT.steps_max) as u32;

    /// As many tickets as one command may end.
    fn tickets_in_a_tick() -> ItemsCount {
        ItemsCount::new(Limits::DEFAULT.steps_max)
    }

    /// One session per lock: one command ends a session and its ticket.
    #[divan::bench(sample_count = TICKETS as u32, sample_size = 1)]
    fn session_each(bencher: Bencher) {
        let mut world = World::with_held(1_000);
        let mut sessions = world.open_sessions(TICKETS);
        hold_in(&mut world, &sessions);
        world.tick(0);
        let world = RefCell::new(world);
        let make = || {
            world.borrow_mut().effects.clear();
            let session = sessions.pop().expect("as many as samples").id;
            Proposal::from(Command::ExpireSession { session, decided_in: Term(1) })
        };
        let bencher = bencher.counter(ItemsCount::new(1_u32)).with_inputs(make);
        bencher.bench_local_values(|proposal| world.borrow_mut().apply(proposal));
    }

    /// One session with all locks: the first command ends it, ticks end its tickets.
    #[divan::bench(sample_count = FULL_TICKS, sample_size = 1)]
    fn one_session(bencher: Bencher) {
        let mut world = World::with_held(1_000);
        let session = world.open_session(None);
        hold_in(&mut world, &vec![session; TICKETS]);
        world.tick(0);
        let world = RefCell::new(world);
        let mut expire = Some(Command::ExpireSession { session: session.id, decided_in: Term(1) });
        let make = || {
            world.borrow_mut().effects.clear();
            Proposal::from(expire.take().unwrap_or_else(|| tick(0)))
        };
        let bencher = bencher.counter(tickets_in_a_tick()).with_inputs(make);
        bencher.bench_local_values(|proposal| world.borrow_mut().apply(proposal));
    }

    /// Leases without a session that all end at the same time.
    #[divan::bench(sample_count = FULL_TICKS, sample_size = 1)]
    fn deadline(bencher: Bencher) {
        let mut world = World::with_held(1_000);
        for _ in 0..TICKETS {
            let name = world.fresh_name();
            let lease = Lease::Deadline { ttl_ms: LONG_MS / 2 };
            world.grant(Acquire { lease, ..acquire(name) });
        }
        let world = RefCell::new(world);
        let mut elapsed_ms = LONG_MS / 2;
        let make = || {
            world.borrow_mut().effects.clear();
            Proposal::from(tick(std::mem::take(&mut elapsed_ms)))
        };
        let bencher = bencher.counter(tickets_in_a_tick()).with_inputs(make);
        bencher.bench_local_values(|proposal| world.borrow_mut().apply(proposal));
    }

    fn hold_in(world: &mut World, sessions: &[SessionRef]) {
        for session in sessions {
            let name = world.fresh_name();
            world.grant(acquire_in(*session, name));
        }
    }
}

/// What a snapshot of a million held locks costs the loop.
mod snapshot {
    use super::shared::{MILLION, SECRET, World, acquire, answer, granted, release};
    use divan::Bencher;
    use divan::counter::ItemsCount;
    use holdfast_core::{Command, Proposal};
    use std::cell::RefCell;

    /// The clone; dropping it is not timed.
    #[divan::bench(sample_count = 200, sample_size = 1)]
    fn take(bencher: Bencher) {
        let world = World::with_held(MILLION);
        bencher.bench_local(|| world.state.snapshot());
    }

    /// The first acquire after it, which copies shared chunks, and a release.
    #[divan::bench(sample_count = 200, sample_size = 1)]
    fn first_pair_after(bencher: Bencher) {
        let world = RefCell::new(World::with_held(MILLION));
        let kept = RefCell::new(None);
        let make = || {
            let world = &mut *world.borrow_mut();
            *kept.borrow_mut() = None;
            *kept.borrow_mut() = Some(world.state.snapshot());
            let name = world.fresh_name();
            (name.clone(), Proposal::from(Command::Acquire(acquire(name))))
        };
        bencher.with_inputs(make).bench_local_values(|(name, proposal)| {
            let world = &mut *world.borrow_mut();
            let token = granted(answer(world.apply(proposal))).token;
            let taken = world.apply(release(name, token, SECRET).into());
            world.effects.clear();
            taken
        });
    }

    /// Releases of locks all over the state while a snapshot is alive: almost every one copies the
    /// chunks that it touches.
    #[divan::bench(sample_count = 10_000, sample_size = 1)]
    fn release_after(bencher: Bencher) {
        let mut world = World::with_held(0);
        let mut locks = world.hold(MILLION).into_iter().step_by(97);
        let _alive = world.state.snapshot();
        let make = || {
            let (name, token) = locks.next().expect("more locks than samples");
            Proposal::from(release(name, token, SECRET))
        };
        bencher.counter(ItemsCount::new(1_u32)).with_inputs(make).bench_local_values(|proposal| {
            let taken = world.apply(proposal);
            world.effects.clear();
            taken
        });
    }
}
