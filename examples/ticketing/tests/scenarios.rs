//! The tester, as a reader starts it, with a small crowd.

use std::process::Command;

fn passes(lock_type: &str, scenarios: usize) {
    let run = Command::new(env!("CARGO_BIN_EXE_ticketing"))
        .args(["test", "--lock-type", lock_type, "--buyers", "60", "--tickets", "5"])
        .env_remove("DATABASE_URL")
        .env_remove("LOCK_URL")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{printed}\n{}", String::from_utf8_lossy(&run.stderr));
    let expected = format!("{lock_type} on SQLite: {scenarios} passed, 0 failed");
    assert!(printed.contains(&expected), "{printed}");
}

#[test]
fn distributed_lock() {
    passes("distributed_lock", 10);
}

#[test]
fn ephemeral_node() {
    passes("ephemeral_node", 10);
}

#[test]
fn native() {
    passes("native", 10);
}

#[test]
fn controls_fail_as_expected() {
    passes("none", 1);
    passes("row_lock", 1);
}
