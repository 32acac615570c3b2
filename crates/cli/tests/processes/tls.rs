//! A cluster whose every connection is encrypted.

use crate::support::{Dev, HOLDFAST, eventually};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs a command against all nodes.
fn holdfast(dev: &Dev, ca: &str, args: &[&str]) -> Output {
    let servers: Vec<String> =
        (1..=3).map(|k| format!("https://localhost:{}", dev.port(k))).collect();
    let mut command = Command::new(HOLDFAST);
    command.args(args).env("HOLDFAST_SERVER", servers.join(",")).env("HOLDFAST_CA", ca);
    command.output().expect("the command can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The node that leads, as soon as one does.
fn leader(dev: &Dev, ca: &str) -> u16 {
    eventually("there is a leader", || {
        let status = holdfast(dev, ca, &["status", "--json"]);
        let status: Value = serde_json::from_slice(&status.stdout).ok()?;
        status["leader"].as_u64()?.try_into().ok()
    })
}

#[test]
fn cluster_with_tls_survives_its_leader() {
    let dev = Dev::start_with(3, &["--tls"]);
    let ca = dev.folder().join("tls/ca.pem").display().to_string();
    let mut last = 0;
    for round in 0..3 {
        let leader = leader(&dev, &ca);
        let wrapped = ["lock", "--ttl", "5s", "seat", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"];
        let token = eventually("the lock is acquired", || {
            let locked = holdfast(&dev, &ca, &wrapped);
            text(&locked.stdout).trim().parse::<u64>().ok()
        });
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        dev.signal(leader, Signal::KILL);
    }
    // The last one that was killed is back, and has caught up with the others over TLS.
    eventually("all nodes are ready", || {
        let status = holdfast(&dev, &ca, &["status", "--json"]);
        let status: Value = serde_json::from_slice(&status.stdout).ok()?;
        let nodes = status["nodes"].as_array()?;
        let applied = nodes.iter().map(|node| node["applied"].as_u64());
        let applied: Vec<u64> = applied.collect::<Option<_>>()?;
        (applied.len() == 3 && applied.windows(2).all(|pair| pair[0] == pair[1])).then_some(())
    });
    assert!(dev.stop());
}

#[test]
fn clients_learn_what_is_wrong_with_their_certificates() {
    let dev = Dev::start_with(1, &["--tls"]);
    let port = dev.port(1);
    let ca = dev.folder().join("tls/ca.pem");
    eventually("the server answers", || {
        let (url, ca) = (format!("https://127.0.0.1:{port}"), ca.display().to_string());
        let shown = Command::new(HOLDFAST).args(["ls", "--server", &url, "--ca", &ca]).output();
        shown.is_ok_and(|shown| shown.status.success()).then_some(())
    });
    let fails = |args: &[&str], expected: &str| {
        for command in [&["ls"][..], &["lock", "--wait", "1s", "seat", "--", "true"]] {
            let (flags, rest) = command.split_at(1);
            let output = Command::new(HOLDFAST).args(flags).args(args).args(rest).output().unwrap();
            let said = text(&output.stderr);
            assert!(!output.status.success() && said.contains(expected), "{command:?}: {said}");
        }
    };
    let https = format!("https://127.0.0.1:{port}");
    let ca = ca.display().to_string();
    fails(&["--server", &https], "certificate");
    fails(&["--server", &https, "--ca", "/does/not/exist"], "can't read /does/not/exist");
    fails(&["--server", &https, "--ca", &ca, "--cert", &ca], "--cert and --key belong together");
    fails(&["--server", &https, "--ca", &ca, "--server-name", "elsewhere.example"], "certificate");
    let plain = format!("http://127.0.0.1:{port}");
    let output = Command::new(HOLDFAST).args(["ls", "--server", &plain]).output().unwrap();
    assert!(text(&output.stderr).contains("requires TLS"), "{output:?}");
    // By another name than that in the URL.
    let named = ["ls", "--server", &https, "--ca", &ca, "--server-name", "localhost"];
    assert!(Command::new(HOLDFAST).args(named).output().unwrap().status.success());
    assert!(dev.stop());
}

#[test]
fn certificates_are_not_overwritten_and_bad_names_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output =
            Command::new(HOLDFAST).arg("certs").args(args).current_dir(folder.path()).output();
        let output = output.unwrap();
        (output.status.success(), text(&output.stderr))
    };
    let (done, said) = run(&["node", "certs", "node-1", "10.0.0.1"]);
    assert!(!done && said.contains("`holdfast certs ca certs` makes an authority"), "{said}");
    assert!(run(&["ca", "certs"]).0);
    let (done, said) = run(&["ca", "certs"]);
    assert!(!done && said.contains("ca.pem exists"), "{said}");
    assert!(run(&["node", "certs", "node-1", "10.0.0.1", "db-1.internal"]).0);
    assert!(run(&["client", "certs", "ana"]).0);
    let (done, said) = run(&["node", "certs", "node-2", "10.0.0.1:7400"]);
    assert!(!done && said.contains("without a port"), "{said}");
    let (done, said) = run(&["client", "certs", "../ana"]);
    assert!(!done && said.contains("is not a name"), "{said}");
    let key: PathBuf = folder.path().join("certs/node-1-key.pem");
    let mode = std::os::unix::fs::PermissionsExt::mode(&key.metadata().unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "only its owner can read a key");
}
