//! The core against a naive model: random commands must have the same answers, effects and views.
//!
//! `HOLDFAST_CASES=100000 cargo test --release -p holdfast-core --test model` runs longer.

mod support;

use holdfast_core::{Answer, Limits, ProposalOutcome, TicketStatus};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;
use support::cases::{ROOMY, TIGHT};
use support::moves::{Move, moves};
use support::run::{Judges, Setup, Step, run};

/// Seconds, not minutes, on two cores.
const CASES: u32 = 3_000;

/// How often each answer was given to each command.
type Coverage = BTreeMap<(String, String), usize>;

#[allow(clippy::disallowed_methods, reason = "decides how long to test, nothing that is tested")]
fn cases(usual: u32) -> u32 {
    let asked = std::env::var("HOLDFAST_CASES").ok().and_then(|cases| cases.parse().ok());
    // Tests whose cases take longer run fewer of them, in the usual proportion.
    asked.map_or(usual, |asked: u32| {
        let share = u64::from(asked) * u64::from(usual);
        u32::try_from(share.div_ceil(u64::from(CASES))).unwrap_or(u32::MAX)
    })
}

/// Plays random moves; a failure is shown as the shortest run that was found.
fn play(setup: Setup, usual_cases: u32, len: std::ops::Range<usize>) -> Coverage {
    let coverage = RefCell::new(Coverage::new());
    let mut runner = TestRunner::new(Config {
        cases: cases(usual_cases),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000,
        ..Config::default()
    });
    let result = runner.run(&moves(len), |moves| match run(&moves, setup) {
        Ok(steps) => {
            let mut coverage = coverage.borrow_mut();
            for step in &steps {
                *coverage.entry(outcome_of(step)).or_default() += 1;
            }
            Ok(())
        }
        Err(failure) => Err(TestCaseError::fail(failure.wrong.check)),
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(_, short)) => match run(&shorter(short.clone(), setup), setup) {
            Err(failure) => panic!("\n{failure}\n"),
            Ok(_) => panic!("{short:?} failed once, but not again"),
        },
        Err(other) => panic!("{other}"),
    }
    coverage.into_inner()
}

/// Removes every move without which the run still fails. proptest tries each only once, and before
/// it has simplified the others.
fn shorter(mut moves: Vec<Move>, setup: Setup) -> Vec<Move> {
    // Longer runs would take too long, and nobody would read them.
    while moves.len() < 100 {
        let without = |at: usize| {
            let mut fewer = moves.clone();
            fewer.remove(at);
            run(&fewer, setup).is_err().then_some(fewer)
        };
        match (0..moves.len()).rev().find_map(without) {
            Some(fewer) => moves = fewer,
            None => break,
        }
    }
    moves
}

/// A name for the result of a step, for counting.
fn outcome_of(step: &Step) -> (String, String) {
    let word = |text: String| {
        let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
        text[..end].to_owned()
    };
    let verb = word(format!("{:?}", step.proposal.command));
    let outcome = match &step.taken {
        ProposalOutcome::Answered(Ok(Answer::TicketStatus(status))) => match status {
            TicketStatus::Waiting { .. } => "Waiting".into(),
            TicketStatus::Held(_) => "Held".into(),
            TicketStatus::Over { .. } => "Over".into(),
        },
        ProposalOutcome::Answered(Ok(answer)) => word(format!("{answer:?}")),
        ProposalOutcome::Answered(Err(refusal)) => {
            let text = format!("{refusal:?}");
            match text.split_once('(') {
                Some(("BadRequest" | "Full", _)) => text,
                _ => word(text),
            }
        }
        other => word(format!("{other:?}")),
    };
    (verb, outcome)
}

fn show(coverage: &Coverage) {
    for ((command, outcome), times) in coverage {
        eprintln!("{times:>9}  {command} -> {outcome}");
    }
}

/// With room for everything.
#[test]
fn core_and_model_agree() {
    let setup = Setup { limits: ROOMY, judges: Judges::ALL };
    show(&play(setup, CASES, 1..200));
}

/// At every limit.
#[test]
fn core_and_model_agree_at_the_bounds() {
    let setup = Setup { limits: TIGHT, judges: Judges::ALL };
    show(&play(setup, CASES, 1..200));
}

/// When a command may serve or end so few tickets that the rest is left to later entries.
#[test]
fn promises_hold_in_small_steps() {
    let judges = Judges { model: false, ..Judges::ALL };
    for (steps_max, limits) in [(1, ROOMY), (2, TIGHT), (2, ROOMY), (3, TIGHT), (3, ROOMY)] {
        let limits = Limits { steps_max, bytes_max: 300, claim_steps_max: 5, ..limits };
        show(&play(Setup { limits, judges }, 500, 1..200));
    }
}

/// When the history has forgotten its first events.
#[test]
fn core_and_model_agree_in_a_long_run() {
    let limits = Limits { history_max: 512, ..ROOMY };
    let setup = Setup { limits, judges: Judges::ALL };
    show(&play(setup, 15, 2_000..2_500));
}
