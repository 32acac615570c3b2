//! A short run of the program, as a reader starts it.

use std::process::Command;

#[test]
fn no_chunk_is_processed_twice() {
    let run = Command::new(env!("CARGO_BIN_EXE_video-queue"))
        .args(["--workers", "100", "--chunks", "60", "--chunk-ms", "30"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{printed}\n{}", String::from_utf8_lossy(&run.stderr));
    let row = |what: &str| {
        let row = printed
            .lines()
            .find(|line| line.starts_with(what))
            .unwrap_or_else(|| panic!("{printed}"));
        row[what.len()..].split_whitespace().map(|n| n.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(row("times processed")[0], 60, "{printed}");
    assert_eq!(row("times uploaded")[0], 60, "{printed}");
    assert_eq!(row("results in the store"), [60, 60], "{printed}");
    assert_eq!(row("work done twice")[0], 0, "{printed}");
    assert!(row("work done twice")[1] > 0, "100 workers are given 32 chunks: {printed}");
}

#[test]
fn invalid_arguments_are_named() {
    for (arguments, named) in [
        (["--workers", "0"], "'0' for '--workers <N>'"),
        (["--chunks", "many"], "'many' for '--chunks <N>'"),
        (["--chunk-ms", "60001"], "'60001' for '--chunk-ms <MS>'"),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_video-queue")).args(arguments).output().unwrap();
        let printed = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && printed.contains(named), "{printed}");
    }
}
