//! Redis: Debian's package, as a single server.

use super::ports;
use super::process::Process;
use super::{Place, Role};
use crate::clients::redis::Connection;
use std::path::{Path, PathBuf};

/// The program, which a package has installed.
pub(super) fn find() -> Result<PathBuf, String> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::split_paths(&folders)
        .map(|folder| folder.join("redis-server"))
        .find(|program| program.is_file());
    program.ok_or_else(|| {
        "redis-server is missing: install it with `sudo apt-get install -y redis-server && sudo \
         systemctl disable --now redis-server`, or leave redis out of --peers"
            .to_owned()
    })
}

/// A server that is not started yet, and its port.
pub(super) fn nodes(
    place: &Place<'_>,
    program: &Path,
    fsync: bool,
) -> Result<(Vec<u16>, Vec<Process>), String> {
    let ports = ports::free(place.nodes)?;
    let node = |(id, ports): (u16, &ports::Ports)| {
        let folder = place.node(id)?;
        let port = ports.clients.to_string();
        let folder = folder.display().to_string();
        let mut args = vec!["--bind", "127.0.0.1", "--port", &port, "--dir", &folder];
        args.extend(["--save", "", "--loglevel", "warning", "--maxclients", "10000"]);
        args.extend(if fsync {
            ["--appendonly", "yes", "--appendfsync", "always"].as_slice()
        } else {
            ["--appendonly", "no"].as_slice()
        });
        Ok(Process::new(program, args, place.folder.join(format!("node-{id}.log"))))
    };
    let nodes = (1..).zip(&ports).map(node).collect::<Result<_, String>>()?;
    Ok((ports.iter().map(|ports| ports.clients).collect(), nodes))
}

pub(super) async fn role(port: u16) -> Result<Role, String> {
    Connection::open(port).await?.call(&["PING"]).await?;
    Ok(Role::Leads)
}
