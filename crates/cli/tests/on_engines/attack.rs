//! Random pairs of signals to the processes of `holdfast lock --on`.

use crate::signal_pairs::attack;
use crate::subject::{self, Subject};

fn attack_on(on: Subject) {
    attack(&on.shell);
}

/// Would fail if any two signals let a command, or what it started, write after the next holder has
/// begun: see the same attack on `holdfast lock` without `--on`.
#[test]
fn no_two_signals_let_a_command_outlive_its_lock_on_holdfast() {
    attack_on(subject::holdfast(false));
}

#[test]
#[ignore = "needs Redis: ./test engines"]
fn no_two_signals_let_a_command_outlive_its_lock_on_redis() {
    attack_on(subject::redis(false));
}

#[test]
#[ignore = "needs etcd: ./test engines"]
fn no_two_signals_let_a_command_outlive_its_lock_on_etcd() {
    attack_on(subject::etcd(false));
}

#[test]
#[ignore = "needs PostgreSQL: ./test engines"]
fn no_two_signals_let_a_command_outlive_its_lock_on_postgres() {
    attack_on(subject::postgres(false));
}
