//! etcd's servers, built once from its Go module.

use super::ports;
use super::process::Process;
use super::{Place, Role, http, install};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// As in peers/etcd/go.mod.
const FOLDER: &str = "etcd-3.6.16";

const SOURCES: [(&str, &str); 3] = [
    ("main.go", include_str!("../../peers/etcd/main.go")),
    ("go.mod", include_str!("../../peers/etcd/go.mod")),
    ("go.sum", include_str!("../../peers/etcd/go.sum")),
];

/// The program, built if it does not exist yet.
pub(super) async fn build() -> Result<PathBuf, String> {
    let folder = install::cache()?.join(FOLDER);
    let program = folder.join("etcd");
    if !program.is_file() {
        let shown = folder.display();
        eprintln!("building etcd into {shown}: some minutes, once");
        install::write(&folder, &SOURCES)?;
        let hint = "install Go 1.26 or newer from https://go.dev/dl";
        install::run("go", &["build", "-trimpath", "-o", "etcd.new", "."], &folder, hint).await?;
        install::put(&folder.join("etcd.new"), &program)?;
    }
    Ok(program)
}

/// Nodes that are not started yet, and their client ports.
pub(super) fn nodes(place: &Place<'_>, program: &Path) -> Result<(Vec<u16>, Vec<Process>), String> {
    let ports = ports::free(place.nodes)?;
    let members: Vec<String> = (1..)
        .zip(&ports)
        .map(|(id, ports)| format!("node-{id}=http://127.0.0.1:{}", ports.peers))
        .collect();
    let members = members.join(",");
    let node = |(id, ports): (u16, &ports::Ports)| {
        let clients = format!("http://127.0.0.1:{}", ports.clients);
        let peers = format!("http://127.0.0.1:{}", ports.peers);
        let args = [
            format!("--name=node-{id}"),
            format!("--data-dir={}", place.node(id)?.join("data").display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster={members}"),
            "--log-level=error".to_owned(),
        ];
        Ok(Process::new(program, args, place.folder.join(format!("node-{id}.log"))))
    };
    let nodes = (1..).zip(&ports).map(node).collect::<Result<_, String>>()?;
    Ok((ports.iter().map(|ports| ports.clients).collect(), nodes))
}

pub(super) async fn role(port: u16) -> Result<Role, String> {
    let status = http::post(port, "/v3/maintenance/status", "{}").await?;
    match &status["leader"] {
        Value::String(leader) if *leader == status["header"]["member_id"] => Ok(Role::Leads),
        Value::String(leader) if leader != "0" => Ok(Role::Follows),
        _ => Err("there is no leader yet".to_owned()),
    }
}
