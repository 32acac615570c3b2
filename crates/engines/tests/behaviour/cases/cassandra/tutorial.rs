//! docs/tutorials/cassandra-lock.md, typed as written into a real cqlsh; and people in cqlsh next
//! to programs that use the driver.

use crate::engine::unique;
use crate::page;
use crate::servers::cassandra::Cassandra;
use crate::servers::cassandra::cqlsh::{Cqlsh, PAGE, run_shell};
use holdfast_locks::Locks;
use std::time::Duration;

const PROGRAM: &str = include_str!("tutorial_program.rs");

/// The program that the page shows.
#[allow(clippy::print_stdout, reason = "it is a program")]
mod program {
    include!("tutorial_program.rs");

    pub(super) async fn run(url: &str) -> Result<Guard, Error> {
        take_region_master(url).await
    }
}

/// The output with the driver's random client ids replaced.
fn normalized(output: &str) -> String {
    const ID_DIGITS: usize = 32;
    let is_id = |part: &str| part.len() == ID_DIGITS && part.bytes().all(|b| b.is_ascii_hexdigit());
    let mut parts: Vec<_> = output.split_inclusive(|c: char| !c.is_ascii_hexdigit()).collect();
    for part in &mut parts {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_hexdigit()).len();
        if is_id(&part[..digits]) {
            *part = "<random id> ";
        }
    }
    parts.concat().trim().to_owned()
}

#[test]
fn random_ids_are_normalised() {
    let line = |id: &str| format!("\n seat | ana/{id} | 3\n");
    let (one, other) = ("0123456789abcdef".repeat(2), "fedcba9876543210".repeat(2));
    assert_eq!(normalized(&line(&one)), normalized(&line(&other)));
    assert_ne!(normalized(&line("12")), normalized(&line("34")));
}

/// Every statement of the page, in order, prints what the page shows. Only the port differs.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Cassandra: ./test engines"]
async fn tutorial_output_matches() {
    let server = tokio::task::spawn_blocking(Cassandra::fresh).await.unwrap();
    let mut cqlsh = Cqlsh::start(server.port);
    let url = format!("cassandra://127.0.0.1:{}/examples", server.port);
    let text = page::read(PAGE);
    // The first two blocks install and start cqlsh.
    let mut blocks = page::blocks(&text).into_iter().skip(2).peekable();
    let (mut guard, mut statements) = (None, 0);
    while let Some(block) = blocks.next() {
        match block.language.as_str() {
            "cql" => {
                let printed = cqlsh.type_in(&block.text);
                let shown = blocks.next_if(|block| block.language == "text");
                let shown = shown.map(|block| block.text).unwrap_or_default();
                assert_eq!(normalized(&printed), normalized(&shown), "{}", block.text);
                statements += 1;
            }
            "sh" => run_shell(&block.text, &std::env::temp_dir()),
            "rust" => {
                assert_eq!(block.text, PROGRAM, "the page and tutorial_program.rs differ");
                guard = Some(program::run(&url).await.unwrap());
            }
            other => panic!("the test can't run a block of {other}"),
        }
    }
    assert!(statements > 20, "only {statements} blocks were typed");
    let guard = guard.expect("the page ends with a program");
    assert_eq!(guard.token().map(u64::from), Some(3));
    assert!(guard.ending().is_some_and(|ending| !ending.died), "{:?}", guard.ending());
    guard.release().await.unwrap();
}

/// A person who follows the page's statements and a program that uses the driver exclude each
/// other, in either order; neither can renew or release what the other holds.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Cassandra: ./test engines"]
async fn a_person_in_cqlsh_and_a_program_exclude_each_other() {
    let port = tokio::task::spawn_blocking(|| Cassandra::shared().port).await.unwrap();
    for options in ["", "&plain=1"] {
        let url = format!("cassandra://127.0.0.1:{port}/examples?replication_factor=1{options}");
        let locks = Locks::connect(&url).await.unwrap();
        let (name, mut cqlsh) = (unique("person"), Cqlsh::start(port));
        let take = format!(
            "INSERT INTO examples.locks (lock_name, client_id) VALUES ('{name}', 'ana') \
             IF NOT EXISTS USING TTL 600;"
        );
        let of_ana = format!("WHERE lock_name = '{name}' IF client_id = 'ana';");
        let renew = format!("UPDATE examples.locks USING TTL 600 SET client_id = 'ana' {of_ana}");
        let release = format!("DELETE FROM examples.locks {of_ana}");
        let applied = |printed: &str| {
            let answer = printed.lines().nth(3).map(str::trim_start).unwrap_or_default();
            let applied = answer.starts_with("True");
            assert!(applied || answer.starts_with("False"), "{printed}");
            applied
        };

        assert!(applied(&cqlsh.type_in(&take)));
        assert!(locks.lock(&name).try_acquire().await.unwrap().is_none());
        let seen = locks.inspect(&name).await.unwrap().expect("it is held");
        assert_eq!((seen.holder.as_deref(), seen.token), (Some("ana"), None));
        let waiting = tokio::spawn(locks.lock(&name).label("program").acquire());
        assert!(applied(&cqlsh.type_in(&renew)), "a waiter got into the way of the holder");
        assert!(!waiting.is_finished());
        assert!(applied(&cqlsh.type_in(&release)));

        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        let guard = waited.expect("the waiter is served").unwrap().unwrap();
        for statement in [&take, &renew, &release] {
            let printed = cqlsh.type_in(statement);
            assert!(!applied(&printed), "{printed}");
            assert!(printed.contains("program/"), "{printed}");
        }
        assert!(!guard.is_lost());
        guard.release().await.unwrap();
        assert!(applied(&cqlsh.type_in(&take)));
        assert!(applied(&cqlsh.type_in(&release)));
    }
}
