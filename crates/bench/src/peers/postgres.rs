//! PostgreSQL: Debian's package, as a single server.

use super::process::Process;
use super::{Place, Role, ports};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Each client has two connections, one of which listens for releases.
const CONNECTIONS_MAX: u32 = 12_000;

/// The folder of its programs, which Debian's package installs outside of the PATH.
pub(super) fn find() -> Result<PathBuf, String> {
    let versions = (10..40).rev().map(|version| format!("/usr/lib/postgresql/{version}/bin"));
    let found = versions.map(PathBuf::from).find(|folder| folder.join("initdb").is_file());
    found.ok_or_else(|| {
        "PostgreSQL is missing: install it with `sudo apt-get install -y postgresql && sudo \
         systemctl disable --now postgresql`, or leave postgres out of --peers"
            .to_owned()
    })
}

/// A server that is not started yet, and its port.
pub(super) fn nodes(
    place: &Place<'_>,
    programs: &Path,
) -> Result<(Vec<u16>, Vec<Process>), String> {
    let ports = ports::free(place.nodes)?;
    let node = |(id, ports): (u16, &ports::Ports)| {
        let folder = place.node(id)?;
        let user = user(place, &folder)?;
        let data = folder.join("data").display().to_string();
        let as_user = |name: &str, args: &[&str]| {
            let program = programs.join(name).display().to_string();
            let words = user.iter().cloned().chain([program]);
            words.chain(args.iter().map(|arg| (*arg).to_owned())).collect::<Vec<String>>()
        };
        let words = ["-D", &data, "-U", "bench", "-A", "trust", "-E", "UTF8"];
        run(&as_user("initdb", &words), &folder)?;
        let settings = [
            format!("port={}", ports.clients),
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=".to_owned(),
            format!("max_connections={CONNECTIONS_MAX}"),
            "log_min_messages=error".to_owned(),
        ];
        let mut words = as_user("postgres", &["-D", &data]).into_iter();
        let program = words.next().ok_or("no program was named")?;
        let settings = settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]);
        let log = place.folder.join(format!("node-{id}.log"));
        Ok(Process::new(Path::new(&program), words.chain(settings), log))
    };
    let nodes = (1..).zip(&ports).map(node).collect::<Result<_, String>>()?;
    Ok((ports.iter().map(|ports| ports.clients).collect(), nodes))
}

/// PostgreSQL refuses to run as root: then it runs as the user of Debian's package, who is made the
/// owner of the folder.
fn user(place: &Place<'_>, folder: &Path) -> Result<Vec<String>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Vec::new());
    }
    let home = std::fs::metadata("/var/lib/postgresql")
        .map_err(|error| format!("the package's user is not there: {error}"))?;
    for folder in [place.folder, folder] {
        chown(folder, Some(home.uid()), Some(home.gid()))
            .map_err(|error| format!("can't give away {}: {error}", folder.display()))?;
    }
    let (uid, gid) = (home.uid().to_string(), home.gid().to_string());
    let words = ["setpriv", "--reuid", &uid, "--regid", &gid, "--clear-groups"];
    Ok(words.map(str::to_owned).to_vec())
}

fn run(words: &[String], folder: &Path) -> Result<(), String> {
    let (program, args) = words.split_first().ok_or("no program was named")?;
    let ran = Command::new(program).args(args).current_dir(folder).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| format!("{program} does not run: {error}"))?;
    if !ran.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&ran.stderr).trim()));
    }
    Ok(())
}

/// It is ready when it accepts a client.
pub(super) async fn role(port: u16) -> Result<Role, String> {
    let url = format!("postgres://bench@127.0.0.1:{port}/postgres?sslmode=disable");
    let connected = holdfast_locks::Locks::connect(&url).await;
    connected.map(|_| Role::Leads).map_err(|error| error.to_string())
}
