//! A model of the bakery for three processes, checked in every interleaving.
//!
//! Each register is read and written separately, because nothing guarantees that Cassandra shows
//! the rows of a partition at one instant. Each process enters once, because each attempt has its
//! own id. It may crash anywhere; some time later its registers expire.

use super::ticket::{Ticket, must_wait, next_number};
use stateright::{Checker, Model, Property};

const PROCESSES: usize = 3;

/// `choosing_flag`: whether processes announce that they are choosing. Without it the algorithm is
/// wrong.
struct Bakery {
    choosing_flag: bool,
    crashes: bool,
}

/// What a process does next. The index is that of the process it looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    WaitForChoosers(usize),
    SetFlag,
    ReadNumber { other: usize, highest: i64 },
    WriteNumber { highest: i64 },
    ClearFlag,
    WaitForChooser(usize),
    WaitForLower(usize),
    Critical,
    Left,
    Crashed,
    Expired,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    steps: [Step; PROCESSES],
    choosing: [bool; PROCESSES],
    /// 0 means none.
    numbers: [i64; PROCESSES],
    /// `first[a][b]`: `a` had its number before `b` set its flag.
    first: [[bool; PROCESSES]; PROCESSES],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Go(usize),
    Crash(usize),
    Expire(usize),
}

impl State {
    fn ticket(&self, process: usize) -> Ticket {
        Ticket { number: self.numbers[process], id: i64::try_from(process).unwrap() }
    }

    fn has_number_and_waits(&self, process: usize) -> bool {
        matches!(
            self.steps[process],
            Step::WaitForChooser(_) | Step::WaitForLower(_) | Step::Critical
        )
    }
}

/// The step for the next process to look at, or `then` after the last.
fn each(other: usize, step: impl Fn(usize) -> Step, then: Step) -> Step {
    if other + 1 < PROCESSES { step(other + 1) } else { then }
}

impl Model for Bakery {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let start = if self.choosing_flag {
            Step::WaitForChoosers(0)
        } else {
            Step::ReadNumber { other: 0, highest: 0 }
        };
        vec![State {
            steps: [start; PROCESSES],
            choosing: [false; PROCESSES],
            numbers: [0; PROCESSES],
            first: [[false; PROCESSES]; PROCESSES],
        }]
    }

    fn actions(&self, _state: &State, actions: &mut Vec<Action>) {
        for process in 0..PROCESSES {
            actions.push(Action::Go(process));
            if self.crashes {
                actions.extend([Action::Crash(process), Action::Expire(process)]);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Crash(me) => {
                let over = matches!(last.steps[me], Step::Left | Step::Crashed | Step::Expired);
                state.steps[me] = (!over).then_some(Step::Crashed)?;
            }
            Action::Expire(me) => {
                state.steps[me] = (last.steps[me] == Step::Crashed).then_some(Step::Expired)?;
                (state.choosing[me], state.numbers[me]) = (false, 0);
            }
            Action::Go(me) => state.steps[me] = self.go(&mut state, me)?,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("mutual exclusion", |_, state: &State| {
                state.steps.iter().filter(|step| **step == Step::Critical).count() <= 1
            }),
            Property::always("first come, first served", |_, state: &State| {
                let served = |process: usize| state.steps[process] == Step::Critical;
                let overtaken = |a: usize, b: usize| {
                    state.first[a][b] && served(b) && state.has_number_and_waits(a) && !served(a)
                };
                !(0..PROCESSES).any(|a| (0..PROCESSES).any(|b| overtaken(a, b)))
            }),
            Property::eventually("everybody is served", |bakery, state: &State| {
                bakery.crashes || state.steps.iter().all(|step| *step == Step::Left)
            }),
        ]
    }
}

impl Bakery {
    /// The next step of a process; `None` while it has to wait.
    fn go(&self, state: &mut State, me: usize) -> Option<Step> {
        let read = Step::ReadNumber { other: 0, highest: 0 };
        Some(match state.steps[me] {
            Step::WaitForChoosers(other) => {
                let free = other == me || !state.choosing[other];
                free.then(|| each(other, Step::WaitForChoosers, Step::SetFlag))?
            }
            Step::SetFlag => {
                state.choosing[me] = true;
                for other in 0..PROCESSES {
                    state.first[other][me] = state.has_number_and_waits(other);
                }
                read
            }
            Step::ReadNumber { other, highest } => {
                let highest = next_number([highest, state.numbers[other]]) - 1;
                let step = |other| Step::ReadNumber { other, highest };
                each(other, step, Step::WriteNumber { highest })
            }
            Step::WriteNumber { highest } => {
                state.numbers[me] = next_number([highest]);
                if self.choosing_flag { Step::ClearFlag } else { Step::WaitForLower(0) }
            }
            Step::ClearFlag => {
                state.choosing[me] = false;
                Step::WaitForChooser(0)
            }
            Step::WaitForChooser(other) => {
                let free = other == me || !state.choosing[other];
                free.then(|| each(other, Step::WaitForChooser, Step::WaitForLower(0)))?
            }
            Step::WaitForLower(other) => {
                let (own, ticket) = (state.ticket(me), state.ticket(other));
                let free = other == me || ticket.number == 0 || !must_wait(own, ticket);
                free.then(|| each(other, Step::WaitForLower, Step::Critical))?
            }
            Step::Critical => {
                state.numbers[me] = 0;
                Step::Left
            }
            Step::Left | Step::Crashed | Step::Expired => return None,
        })
    }
}

#[test]
fn three_processes_exclude_each_other_in_arrival_order() {
    let bakery = Bakery { choosing_flag: true, crashes: false };
    let checker = bakery.checker().spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 1_000, "the model hardly moves");
}

#[test]
fn crashes_at_any_step_do_not_break_exclusion() {
    let bakery = Bakery { choosing_flag: true, crashes: true };
    bakery.checker().spawn_bfs().join().assert_properties();
}

/// Why the flag is needed: a process that has read the numbers but not yet written its own is
/// invisible.
#[test]
fn without_the_choosing_flag_exclusion_breaks() {
    let bakery = Bakery { choosing_flag: false, crashes: false };
    let checker = bakery.checker().spawn_bfs().join();
    let path = checker.discovery("mutual exclusion").expect("the bug is found");
    let inside = path.last_state().steps.iter().filter(|step| **step == Step::Critical).count();
    assert_eq!(inside, 2);
}
