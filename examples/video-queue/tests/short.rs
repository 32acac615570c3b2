//! A short run of the program, as a reader starts it.

use std::process::Command;

#[test]
fn no_chunk_is_processed_twice() {
    let run = Command::new(env!("CARGO_BIN_EXE_video-queue"))
        .args(["--workers", "100", "--chunks", "60", "--chunk-ms", "30"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    let row = |what: &str| {
        let row =
            said.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("{said}"));
        row[what.len()..].split_whitespace().map(|n| n.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(row("chunks processed")[0], 60, "{said}");
    assert_eq!(row("chunks uploaded"), [60, 60], "{said}");
    assert_eq!(row("work done twice")[0], 0, "{said}");
    assert!(row("work done twice")[1] > 0, "100 workers are given 32 chunks: {said}");
}
