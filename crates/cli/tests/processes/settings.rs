//! How a node is configured: flags, the environment, a file; and what it says if that makes no
//! sense.

use crate::support::{Dev, HOLDFAST, Http, Ports, eventually};
use rustix::process::Signal;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;

fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(HOLDFAST);
    command.args(args).envs(env.iter().copied());
    command.output().expect("holdfast runs")
}

/// Fails with these words, and does not panic.
fn is_refused(args: &[&str], why: &str) {
    let output = run(args, &[]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{args:?} was taken");
    assert!(printed.contains(why) && !printed.contains("panicked"), "{args:?}: {printed}");
}

fn file(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("holdfast.toml");
    fs::write(&file, text).expect("a file can be written");
    let file = file.to_str().expect("a path in plain letters").to_owned();
    (folder, file)
}

#[test]
fn flags_override_environment_overrides_file() {
    let (_folder, file) = file("port = 1001\nadvertise = 'file'\ndata_dir = 'file'\n");
    let args = ["serve", "--config", &file, "--print-config", "--port", "1003"];
    let env = [("HOLDFAST_PORT", "1002"), ("HOLDFAST_ADVERTISE", "environment")];
    let output = run(&args, &env);
    let printed = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        "port = 1003",
        "advertise = \"environment\"",
        "data_dir = \"file\"",
        "listen = \"127.0.0.1\"",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "no {line} in\n{printed}");
    }
}

#[test]
fn invalid_settings_are_refused_with_a_hint() {
    let (folder, typo) = file("prot = 7400\n");
    let data = folder.path().join("data");
    let data = data.to_str().expect("a path in plain letters");
    is_refused(&["serve", "--config", &typo], "unknown field `prot`");
    is_refused(&["serve", "--config", "no-such-file.toml"], "can't read no-such-file.toml");
    is_refused(&["serve"], "--data-dir FOLDER");
    is_refused(&["serve", "--data-dir", data, "--node", "1"], "belong together");
    is_refused(&["serve", "--data-dir", data, "--port", "65530"], "leaves no room");
    is_refused(&["serve", "--data-dir", data, "--listen", "0.0.0.0"], "--password-file FILE");
    // A password alone would travel in the clear.
    is_refused(
        &["serve", "--data-dir", data, "--listen", "0.0.0.0", "--password-file", &typo],
        "use --tls-cert, --tls-key and --tls-ca",
    );
    is_refused(
        &["serve", "--data-dir", data, "--listen", "0.0.0.0", "--insecure"],
        "--advertise HOST",
    );
    is_refused(
        &["serve", "--data-dir", data, "--listen", "192.0.2.1", "--insecure"],
        "192.0.2.1 is not an address of this machine",
    );
    is_refused(
        &["serve", "--data-dir", data, "--node", "1", "--members", "1:10.0.0.1"],
        "write ID=HOST:PORT",
    );
    is_refused(
        &["serve", "--data-dir", data, "--password-file", "no-such-file"],
        "can't read the password no-such-file",
    );
    let (_folder, twice) = file("password = 'a'\npassword_file = 'b'\n");
    is_refused(&["serve", "--config", &twice], "keep one");
    let (_folder, wrong) = file("port = 'seven'\n");
    is_refused(&["serve", "--config", &wrong], "port = 'seven'");
    assert!(!fs::exists(data).expect("a path can be looked at"), "a refused start left a folder");
}

#[test]
fn busy_port_is_named_with_the_flag_to_change() {
    let ports = Ports::reserve();
    let third = ports.of(3);
    let busy = TcpListener::bind((Ipv4Addr::LOCALHOST, third)).expect("the port is free");
    let why = format!("port {third} is busy: stop what uses it, or move all ports with --port");
    let port = |port: u16| port.to_string();
    is_refused(&["dev", "--port", &port(third)], &why);
    // One node's port is enough, and it is reported once.
    is_refused(&["dev", "--nodes", "3", "--port", &port(ports.base())], &why);
    drop(busy);
}

/// A file with a password in it, and a node that asks for it.
#[test]
fn node_runs_from_a_settings_file_alone() {
    let ports = Ports::reserve();
    let (folder, config) =
        file(&format!("data_dir = 'data'\nport = {}\npassword = 'open sesame'\n", ports.base()));
    let mut node = crate::support::Node::new::<&str>(ports.base(), &folder.path().join("n"), []);
    let mut command = Command::new(HOLDFAST);
    command.args(["serve", "--config", &config]).current_dir(folder.path());
    node.start_as(command);
    let http = Http::new(Duration::from_secs(20));
    node.ready(&http);
    let reply = http.get(ports.base(), "/v1/status").expect("an answer");
    assert_eq!((reply.status, reply.code()), (401, "unauthenticated"));
    assert!(node.stop().success());
    assert!(!node.printed().contains("sesame"), "{}", node.printed());
    assert!(folder.path().join("data").is_dir());
}

/// A dead node is reported and restarted; with `--no-restart` it is not.
#[test]
fn dev_restarts_dead_nodes_unless_told_not_to() {
    let http = Http::new(Duration::from_secs(20));
    let dev = Dev::start(3);
    http.get_ok(dev.port(2), "/readyz");
    let before = eventually("node 2 runs", || dev.pid(2));
    dev.signal(2, Signal::KILL);
    eventually("node 2 runs again", || dev.pid(2).filter(|pid| *pid != before));
    http.get_ok(dev.port(2), "/readyz");
    assert!(dev.printed().contains("node 2 starts again in 1 s"), "{}", dev.printed());
    assert!(dev.stop());

    let dev = Dev::start_with(3, &["--no-restart"]);
    http.get_ok(dev.port(3), "/readyz");
    dev.signal(3, Signal::KILL);
    eventually("its end is reported", || dev.printed().contains("node 3 ended").then_some(()));
    // The other two keep serving; a third one would have been restarted by now.
    std::thread::sleep(Duration::from_millis(1_500));
    http.get_ok(dev.port(1), "/readyz");
    assert!(dev.pid(3).is_none() && !dev.printed().contains("starts again"), "{}", dev.printed());
    assert!(dev.stop());
}

/// One node in `node-1`, with its pid file, and the data is there again at the next start.
#[test]
fn dev_keeps_its_data_in_the_given_folder() {
    let http = Http::new(Duration::from_secs(20));
    let mut dev = Dev::start(1);
    http.get_ok(dev.port(1), "/readyz");
    let held = http.grab(dev.port(1), "seat-12A");
    assert!(dev.pid(1).is_some());
    dev.restart();
    http.get_ok(dev.port(1), "/readyz");
    assert_eq!(http.holders(dev.port(1), "seat-12A"), [held.token]);
    assert!(dev.stop());
}
