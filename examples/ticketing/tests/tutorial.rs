//! docs/tutorials/ticketing.md: every curl command as written, and its answer as printed.

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use ticketing::tester::Failure;
use ticketing::tester::shop::{Plan, Shop};

const PAGE: &str = include_str!("../../../docs/tutorials/ticketing.md");

/// The blocks of the page: their language and their text.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let fenced = PAGE.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n')).collect()
}

fn parse(answer: &str) -> Result<Value, Failure> {
    let mut answer: Value = serde_json::from_str(answer)?;
    if let Some(until) = answer.get_mut("reserved_until_ms") {
        assert!(until.as_i64().is_some_and(|until| until > 1_700_000_000_000), "{until}");
        *until = Value::Null;
    }
    Ok(answer)
}

#[test]
fn tutorial_commands_work_as_written() -> Result<(), Failure> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_ticketing"));
    let (lock_type, lock_url, postgres_url) = ("distributed_lock".to_owned(), None, None);
    let mut shop = Shop::open(Plan { program, lock_type, lock_url, postgres_url })?;
    let service = shop.start(&[("RESERVE_SECONDS", "600")])?;
    let port = service.client.url().rsplit(':').next().ok_or("no port")?.to_owned();
    let mut answered = String::new();
    let mut compared = 0;
    for (language, text) in blocks() {
        match language {
            "sh" => {
                let commands = text.replace(":6005", &format!(":{port}"));
                let commands = commands.replace("curl ", "curl --silent --show-error ");
                for command in commands.lines() {
                    let run = Command::new("bash").args(["-c", command]).output()?;
                    let stderr = String::from_utf8_lossy(&run.stderr);
                    assert!(run.status.success(), "{command}: {stderr}");
                    answered = String::from_utf8(run.stdout)?;
                }
            }
            "json" => {
                assert_eq!(parse(&answered)?, parse(text)?, "{answered}");
                compared += 1;
            }
            other => assert_eq!(other, "sh project", "an unknown kind of block"),
        }
    }
    assert_eq!(compared, 4);
    Ok(())
}

/// The table of reasons has every reason.
#[test]
fn every_reason_is_explained() {
    let source = include_str!("../src/domain.rs");
    let codes = source.split("fn code(").nth(1).unwrap().split("fn hint(").next().unwrap();
    let codes: Vec<&str> = codes.split('"').skip(1).step_by(2).collect();
    assert_eq!(codes.len(), 9);
    for code in codes {
        assert!(PAGE.contains(&format!("| `{code}` |")), "{code} is not in the tutorial");
    }
}
