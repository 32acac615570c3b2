//! Every planted mistake is caught: what would notice a broken rule is shown to notice it.

mod support;

use holdfast_core::Mistake;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use support::cases::{ROOMY, TIGHT};
use support::moves::{Move, moves};
use support::run::{Judges, Setup, run};

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

/// After how many cases it is caught, and by which check.
fn caught(
    cases: &[Vec<Move>],
    mistake: Option<Mistake>,
    judges: Judges,
) -> Option<(usize, String)> {
    cases.iter().enumerate().find_map(|(at, moves)| {
        let limits = if at.is_multiple_of(2) { ROOMY } else { TIGHT };
        let failure = run(moves, Setup { limits, mistake, judges }).err()?;
        Some((at + 1, failure.wrong.check.to_owned()))
    })
}

#[test]
fn every_planted_mistake_is_caught() {
    let cases: Vec<Vec<Move>> = cases().collect();
    assert_eq!(cases.len(), CASES);
    assert_eq!(caught(&cases, None, Judges::ALL), None, "caught without a mistake");
    let show = |caught: &Option<(usize, String)>| match caught {
        Some((cases, check)) => format!("case {cases:>3}: {check}"),
        None => "not caught".to_owned(),
    };
    let mut uncaught = Vec::new();
    for mistake in Mistake::ALL {
        let all = caught(&cases, Some(mistake), Judges::ALL);
        let model = caught(&cases, Some(mistake), MODEL);
        let promises = caught(&cases, Some(mistake), PROMISES);
        eprintln!(
            "{:<22} {:<38} | the model alone: {:<22} | from outside: {}",
            format!("{mistake:?}"),
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
