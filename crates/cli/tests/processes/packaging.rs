//! What is shipped with the program matches the program.

use crate::support::{Cluster, HOLDFAST};
use std::process::Command;

const UNIT: &str = include_str!("../../../../packaging/holdfast.service");
const SETTINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/holdfast.toml");
const CONTAINER: &str = include_str!("../../../../packaging/Containerfile");

fn print_config(args: &[&str], env: &[(&str, &str)]) -> String {
    let mut command = Command::new(HOLDFAST);
    let output = command.args(args).arg("--print-config").envs(env.iter().copied()).output();
    let output = output.expect("holdfast runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn systemd_unit_starts_a_node_with_the_shipped_settings() {
    let start = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a start");
    let start = start.replace("${CREDENTIALS_DIRECTORY}/holdfast.toml", SETTINGS);
    let args: Vec<&str> = start.split(' ').skip(1).collect();
    let printed = print_config(&args, &[]);
    let state =
        UNIT.lines().find_map(|line| line.strip_prefix("StateDirectory=")).expect("a folder");
    assert!(printed.contains(&format!("data_dir = \"/var/lib/{state}\"")), "{printed}");
}

/// What is commented out in the settings is right as well.
#[test]
fn every_documented_setting_exists() {
    let text = std::fs::read_to_string(SETTINGS).expect("the settings are shipped");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut shown = 0;
    for line in text.lines() {
        let Some(setting) = line.strip_prefix("# ").filter(|line| line.contains(" = ")) else {
            continue;
        };
        let file = folder.path().join("one.toml");
        std::fs::write(&file, setting).expect("a file can be written");
        print_config(&["serve", "--config", file.to_str().expect("plain letters")], &[]);
        shown += 1;
    }
    assert!(shown >= 6, "the settings were not found");
}

#[test]
fn container_starts_a_node_and_checks_its_health() {
    let line = |word: &str| CONTAINER.lines().find_map(|line| line.trim().strip_prefix(word));
    let env: Vec<(&str, &str)> = line("ENV ")
        .expect("an environment")
        .split(' ')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    assert_eq!(line("ENTRYPOINT "), Some(r#"["holdfast"]"#));
    let printed = print_config(&["serve"], &env);
    assert!(printed.contains("listen = \"0.0.0.0\""), "{printed}");

    let cluster = Cluster::start(1);
    let check: Vec<String> = CONTAINER
        .lines()
        .filter_map(|line| line.trim().strip_prefix("CMD "))
        .filter_map(|words| serde_json::from_str(words).ok())
        .find(|words: &Vec<String>| words.first().is_some_and(|word| word == "bash"))
        .expect("a health check");
    let port = cluster.nodes[0].port.to_string();
    let healthy = |port: &str| {
        let args = check.iter().skip(1).map(|word| word.replace("7400", port));
        Command::new("bash").args(args).output().expect("bash runs").status.success()
    };
    assert!(healthy(&port), "a node that lives is taken for dead");
    assert!(!healthy("1"), "a node that is not there is taken for alive");
}
