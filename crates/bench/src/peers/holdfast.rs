//! Holdfast's servers: the `holdfast` binary of this checkout.

use super::http::get;
use super::ports::{self, Ports};
use super::process::Process;
use super::{Place, Role};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The given binary, or the one next to this program.
pub(super) fn find(named: Option<PathBuf>) -> Result<PathBuf, String> {
    let beside = || {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok::<PathBuf, String>(own.with_file_name("holdfast"))
    };
    let program = named.map_or_else(beside, Ok)?;
    if !program.is_file() {
        return Err(format!(
            "there is no {}: build it with `cargo build --release`, or use --holdfast PATH",
            program.display()
        ));
    }
    Ok(program)
}

/// Nodes that are not started yet, and their client ports.
pub(super) fn nodes(place: &Place<'_>, program: &Path) -> Result<(Vec<u16>, Vec<Process>), String> {
    let ports = ports::free(place.nodes)?;
    let key = place.folder.join("cluster.key");
    place.write(&key, &new_key(program)?)?;
    let members: Vec<String> =
        (1..).zip(&ports).map(|(id, ports)| format!("{id}=127.0.0.1:{}", ports.peers)).collect();
    let members = members.join(",");
    let node = |(id, Ports { clients, .. }): (u16, &Ports)| {
        let mut args: Vec<String> = vec!["serve".into(), "--stop-with-stdin".into()];
        let data = place.node(id)?.join("data");
        args.extend(["--data-dir".into(), data.display().to_string()]);
        args.extend(["--cluster-key".into(), key.display().to_string()]);
        args.extend(["--port".into(), clients.to_string()]);
        args.extend(["--node".into(), id.to_string(), "--members".into(), members.clone()]);
        Ok(Process::new(program, args, place.folder.join(format!("node-{id}.log"))))
    };
    let nodes = (1..).zip(&ports).map(node).collect::<Result<_, String>>()?;
    Ok((ports.iter().map(|ports| ports.clients).collect(), nodes))
}

fn new_key(program: &Path) -> Result<String, String> {
    let made = Command::new(program).arg("new-key").output();
    let made = made.map_err(|error| format!("can't start {}: {error}", program.display()))?;
    String::from_utf8(made.stdout).map_err(|_| "`holdfast new-key` printed no key".to_owned())
}

pub(super) async fn role(port: u16) -> Result<Role, String> {
    get(port, "/readyz").await?;
    let status = get(port, "/v1/status").await?;
    let leads = !status["leader"].is_null() && status["leader"] == status["node"];
    Ok(if leads { Role::Leads } else { Role::Follows })
}

pub(super) async fn waiters(port: u16) -> Result<u64, String> {
    let status = get(port, "/v1/status").await?;
    status["waiters"].as_u64().ok_or_else(|| format!("no waiters in the status: {status}"))
}
