//! A short run of the program, as a reader starts it.

use std::process::Command;

#[test]
fn no_file_is_corrupted() {
    let run = Command::new(env!("CARGO_BIN_EXE_shared-files"))
        .args(["--stops", "4", "--workers", "3", "--files", "2"])
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
    assert!(row("edits acknowledged")[0] > 0, "{printed}");
    let stops = row("workers stopped")[0] + row("workers killed")[0];
    assert_eq!(stops, 4, "{printed}");
    assert_eq!(row("edits lost")[0], 0, "{printed}");
    assert_eq!(row("files corrupted")[0], 0, "{printed}");
}

#[test]
fn invalid_arguments_are_named() {
    for (arguments, named) in [
        (["--stops", "0"], "'0' for '--stops <N>'"),
        (["--workers", "101"], "'101' for '--workers <N>'"),
        (["--files", "-1"], "'-1'"),
    ] {
        let run =
            Command::new(env!("CARGO_BIN_EXE_shared-files")).args(arguments).output().unwrap();
        let printed = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && printed.contains(named), "{printed}");
    }
}
