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
    assert_eq!(row("times processed")[0], 60, "{said}");
    assert_eq!(row("times uploaded")[0], 60, "{said}");
    assert_eq!(row("results in the store"), [60, 60], "{said}");
    assert_eq!(row("work done twice")[0], 0, "{said}");
    assert!(row("work done twice")[1] > 0, "100 workers are given 32 chunks: {said}");
}

#[test]
fn invalid_arguments_are_named() {
    for (arguments, named) in [
        (["--workers", "0"], "'0' for '--workers <N>'"),
        (["--chunks", "many"], "'many' for '--chunks <N>'"),
        (["--chunk-ms", "60001"], "'60001' for '--chunk-ms <MS>'"),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_video-queue")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && said.contains(named), "{said}");
    }
}
