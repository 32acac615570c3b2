//! Every example in every `--help`, run as written, in namespaces where the default ports are free.

use crate::support::{HOLDFAST, run_apart};
use std::fmt::Write;
use std::fs;
use std::process::Command;

/// Commands that need no example: there is only one way to type them.
const WITHOUT: [&str; 2] = ["new-key", "play"];

/// Commands that run before the server that the others need, because they want its port.
const BEFORE_THE_SERVER: [&str; 3] = ["dev", "serve", "rejoin"];

fn help(args: &[&str]) -> String {
    let output = Command::new(HOLDFAST).args(args).arg("--help").output().expect("holdfast runs");
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stdout).expect("help is text")
}

/// The commands listed in the help.
fn commands() -> Vec<String> {
    let help = help(&[]);
    let list = help.split("Commands:\n").nth(1).expect("a list of commands");
    let lines = list.lines().take_while(|line| !line.is_empty());
    let named = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let named = named.filter_map(|line| line.split_whitespace().next());
    named.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// The lines to type: text next to or above them is for people.
fn examples(help: &str) -> Vec<String> {
    let from =
        ["Examples:\n", "Example:\n", "Try it:\n"].iter().find_map(|head| help.split(head).nth(1));
    let mut typed: Vec<String> = Vec::new();
    for line in from.unwrap_or_default().lines().map(str::trim) {
        if let Some(last) = typed.last_mut().filter(|last| last.ends_with('\\')) {
            last.pop();
            last.push_str(line);
        } else if ["holdfast ", "eval ", "grant=", "id=", "printf "]
            .iter()
            .any(|word| line.starts_with(word))
        {
            let line = line.split("   ").next().unwrap_or_default();
            typed.push(line.to_owned());
        }
    }
    typed
}

/// What must be set up first.
fn before(command: &str) -> &'static str {
    match command {
        "serve" => {
            "head -c 24 /dev/urandom | base64 > password; echo \"data_dir = 'd'\" > holdfast.toml"
        }
        // Its example with `--on` needs a server that speaks the Redis protocol.
        "lock" => {
            "(holdfast serve --port 9000 --data-dir redis --redis 127.0.0.1:6379 > redis.log 2>&1 &)
             until curl -fso ready http://127.0.0.1:9000/readyz; do sleep 0.1; done"
        }
        // With users, everybody must log in, so they have a server of their own.
        "users" => {
            "echo open > cluster.password; echo hush > nightly.password
             printf '#!/bin/sh\\n' > job; chmod +x job
             (holdfast serve --port 9100 --data-dir users --password-file cluster.password \
                 > users.log 2>&1 &)
             until curl -fso ready http://127.0.0.1:9100/readyz; do sleep 0.1; done
             export HOLDFAST_SERVER=http://127.0.0.1:9100 HOLDFAST_PASSWORD_FILE=cluster.password"
        }
        "accept-move" => "timeout 3 holdfast serve --port 9000 --data-dir old; cp -r old data",
        "revoke" | "break" => "holdfast acquire nightly-report --ttl 5s > held",
        "restore" => {
            "holdfast backup holdfast.backup
             timeout 3 holdfast serve --port 9000 --data-dir data
             printf ZZZZZZZZ | dd of=data/log-00000000000000000001 bs=1 seek=200 conv=notrunc"
        }
        _ => "true",
    }
}

/// The exit codes that an example may have. Commands that run until they are ended have 124, from
/// `timeout`; those about nodes that don't exist are refused, and docs/operations.md shows them
/// with real ones.
fn allowed(command: &str) -> &'static [i32] {
    match command {
        "dev" | "top" => &[124],
        "watch" => &[0, 124],
        "serve" | "rejoin" | "accept-move" => &[0, 1, 124],
        "members" => &[0, 75],
        _ => &[0],
    }
}

fn script(command: &str, examples: &[String]) -> String {
    let mut script = format!("mkdir box-{command}; cd box-{command}\n{}\n", before(command));
    for line in examples {
        let line = match line.split_whitespace().nth(1).unwrap_or_default() {
            "dev" | "serve" | "watch" | "rejoin" => format!("timeout 3 {line}"),
            "top" => format!("timeout 3 script -qec '{line}' /dev/null"),
            // Each restore creates the same folder.
            "restore" => format!("rm -rf data-2; {line}"),
            _ => line.clone(),
        };
        let _ = writeln!(script, "{line}\necho $? >> codes");
    }
    script
}

/// Would fail if an example could not be typed as it is, or if a command had none.
#[test]
fn every_example_works_as_written() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = |name: &str| folder.path().join(name);
    let mut all: Vec<(String, Vec<String>)> = vec![("holdfast".to_owned(), examples(&help(&[])))];
    for command in commands() {
        let found = examples(&help(&[&command]));
        let needed = !WITHOUT.contains(&command.as_str());
        assert!(!found.is_empty() || !needed, "{command} has no example");
        all.push((command, found));
    }
    assert!(all.len() > 25, "the commands were not found: {all:?}");

    let mut run = "(sleep 900; kill -9 -1) &\nip link set lo up\n".to_owned();
    run += "for n in 1 2 3 4; do ip addr add 10.0.0.$n/32 dev lo; done\n";
    let (first, then): (Vec<_>, Vec<_>) = all.iter().partition(|(command, _)| {
        command == "holdfast" || BEFORE_THE_SERVER.contains(&command.as_str())
    });
    let add = |(command, examples): &(String, Vec<String>), run: &mut String| {
        fs::write(file(&format!("{command}.sh")), script(command, examples)).expect("a script");
        let _ = writeln!(run, "bash -u {command}.sh > {command}.out 2>&1; echo {command} > done");
    };
    first.into_iter().for_each(|one| add(one, &mut run));
    run += "holdfast dev --data-dir server > server.log 2>&1 &\n\
            until curl -fso ready http://127.0.0.1:7400/readyz; do sleep 0.1; done\n";
    then.into_iter().for_each(|one| add(one, &mut run));
    fs::write(file("all.sh"), run).expect("a script");
    let status = run_apart(folder.path());

    for (command, examples) in &all {
        let codes = fs::read_to_string(file(&format!("box-{command}/codes"))).unwrap_or_default();
        let codes: Vec<i32> = codes.lines().filter_map(|code| code.parse().ok()).collect();
        let printed = fs::read_to_string(file(&format!("{command}.out"))).unwrap_or_default();
        assert_eq!(codes.len(), examples.len(), "{status}: {command}: {examples:#?}\n{printed}");
        let allowed = if command == "holdfast" { &[0, 124][..] } else { allowed(command) };
        for (code, example) in codes.iter().zip(examples) {
            assert!(allowed.contains(code), "code {code}: {example}\n{printed}");
        }
    }
}

#[test]
fn examples_are_found() {
    let help = "Usage: x\n\nExamples:\n  One:\n    holdfast a --b \\\n        c\n\n  holdfast d   that is d\n";
    assert_eq!(examples(help), ["holdfast a --b c", "holdfast d"]);
}
