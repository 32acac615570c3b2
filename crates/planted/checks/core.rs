//! Every mistake that is planted in the core is caught, by the model alone and by the promises
//! alone. A module of the copied `tests/model.rs`.

use crate::support::cases::{ROOMY, TIGHT};
use crate::support::moves::{Move, moves};
use crate::support::run::{Judges, Setup, run};
use holdfast_core::planted;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The same ones in every run of the tests.
const CASES: usize = 400;
const SEED: [u8; 32] = [7; 32];

const MODEL: Judges = Judges { promises: false, invariants: false, model: true };
const PROMISES: Judges = Judges { promises: true, invariants: false, model: false };

fn cases() -> impl Iterator<Item = Vec<Move>> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &SEED);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = moves(1..200);
    let case = move || Some(strategy.new_tree(&mut runner).ok()?.current());
    std::iter::from_fn(case).take(CASES)
}

/// After how many cases a mistake is caught, and by which check.
fn caught(cases: &[Vec<Move>], mistake: Option<&str>, judges: Judges) -> Option<(usize, String)> {
    planted::plant(mistake);
    cases.iter().enumerate().find_map(|(at, moves)| {
        let limits = if at.is_multiple_of(2) { ROOMY } else { TIGHT };
        let failure = run(moves, Setup { limits, judges }).err()?;
        Some((at + 1, failure.wrong.check.to_owned()))
    })
}

#[test]
fn every_planted_core_mistake_is_caught() {
    let cases: Vec<Vec<Move>> = cases().collect();
    assert_eq!(cases.len(), CASES);
    assert_eq!(caught(&cases, None, Judges::ALL), None, "caught without a mistake");
    let show = |caught: &Option<(usize, String)>| match caught {
        Some((cases, check)) => format!("case {cases:>3}: {check}"),
        None => "not caught".to_owned(),
    };
    let mut uncaught = Vec::new();
    for mistake in planted::CORE {
        let all = caught(&cases, Some(mistake), Judges::ALL);
        let model = caught(&cases, Some(mistake), MODEL);
        let promises = caught(&cases, Some(mistake), PROMISES);
        eprintln!(
            "{mistake:<25} {:<38} | the model alone: {:<22} | from outside: {}",
            show(&all),
            show(&model),
            show(&promises)
        );
        if all.is_none() || model.is_none() || promises.is_none() {
            uncaught.push(mistake);
        }
    }
    assert!(uncaught.is_empty(), "not caught: {uncaught:?}");
}
