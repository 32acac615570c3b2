//! A real PostgreSQL, with a password and TLS.

use super::Server;
use super::process::{Process, free_port, program};
use crate::engine::{Engine, needs_own_server};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The password of `ana`; the database `postgres` does not require it.
pub(crate) const PASSWORD: &str = "s3cret";

pub(crate) struct Postgres {
    process: Process,
    folder: PathBuf,
    pub(crate) port: u16,
}

impl Postgres {
    /// The one that the cases share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// The output of a query in psql.
    pub(crate) fn psql(&self, database: &str, query: &str) -> String {
        let port = self.port.to_string();
        let mut psql = Command::new(binary("psql"));
        psql.args(["-h", "127.0.0.1", "-p", &port, "-U", "ana", "-d", database]);
        psql.args(["-X", "-A", "-t", "-c", query]).env("PGPASSWORD", PASSWORD);
        run(&mut psql).trim_end().to_owned()
    }

    /// The certificate that it presents.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("server.crt")
    }

    fn start() -> Self {
        let port = free_port();
        let is_ready = binary("pg_isready");
        let ready = move || {
            let port = port.to_string();
            let mut probe = Command::new(&is_ready);
            probe.args(["-q", "-h", "127.0.0.1", "-p", &port]).status().unwrap().success()
        };
        let mut own = PathBuf::new();
        let command = |folder: &Path| {
            own = folder.to_owned();
            set_up(folder, port)
        };
        let process = Process::start(command, ready);
        Self { process, folder: own, port }
    }
}

impl Server for Postgres {
    /// QUIT is PostgreSQL's own way to simulate a crash: it ends all of its processes, which a
    /// killed parent would leave for a moment, and then a restart is refused.
    fn kill(&self) {
        let file = self.folder.join("data/postmaster.pid");
        let pid = std::fs::read_to_string(&file).unwrap();
        let pid = pid.lines().next().and_then(|pid| pid.parse().ok());
        let pid = rustix::process::Pid::from_raw(pid.unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
        while file.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.process.kill();
    }

    fn restart(&self) {
        self.process.restart();
    }
}

/// Creates a database in the folder, and returns the command that serves it.
fn set_up(folder: &Path, port: u16) -> Vec<String> {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    std::fs::write(path("password"), PASSWORD).unwrap();
    run(Command::new(program("openssl", "openssl"))
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-nodes", "-days", "30", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-out", &path("server.crt"), "-keyout", &path("server.key")]));
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path("server.key"), private).unwrap();
    let user = user(folder);
    let as_user = |command: &[String]| [&user[..], command].concat();
    let initdb = as_user(&[
        binary("initdb"),
        format!("--pgdata={}", path("data")),
        format!("--pwfile={}", path("password")),
        "--username=ana".to_owned(),
        "--auth=scram-sha-256".to_owned(),
        "--encoding=UTF8".to_owned(),
        "--no-sync".to_owned(),
    ]);
    run(Command::new(&initdb[0]).args(&initdb[1..]).current_dir(folder));
    // Checking passwords takes long in an unoptimized build, and is not what the suite is about.
    let access = "host postgres all 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(path("data/pg_hba.conf"), access).unwrap();
    let mut command = as_user(&[binary("postgres"), "-D".to_owned(), path("data")]);
    for setting in [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        "max_connections=300".to_owned(),
        // The cases kill the process, not the machine.
        "fsync=off".to_owned(),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", path("server.crt")),
        format!("ssl_key_file={}", path("server.key")),
    ] {
        command.extend(["-c".to_owned(), setting]);
    }
    command
}

/// A program of the newest installed PostgreSQL; Debian keeps them out of the PATH.
fn binary(name: &str) -> String {
    let versions =
        (10..40).rev().map(|version| format!("/usr/lib/postgresql/{version}/bin/{name}"));
    let found = versions.into_iter().find(|path| Path::new(path).exists());
    found.unwrap_or_else(|| program(name, "postgresql"))
}

/// PostgreSQL refuses to run as root: then it runs as the user of Debian's package, who is made the
/// owner of the folder.
fn user(folder: &Path) -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let home = std::fs::metadata("/var/lib/postgresql").expect("the home of Debian's package");
    for path in ["", "server.crt", "server.key", "password"] {
        chown(folder.join(path), Some(home.uid()), Some(home.gid())).unwrap();
    }
    ["setpriv", "--reuid", &home.uid().to_string(), "--regid", &home.gid().to_string()]
        .map(str::to_owned)
        .into_iter()
        .chain(["--clear-groups".to_owned()])
        .collect()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn engine(recipe: &str) -> Engine {
    let (port, server) = if needs_own_server() {
        let own = Postgres::start();
        (own.port, Some(Arc::new(own) as Arc<dyn Server>))
    } else {
        (Postgres::shared().port, None)
    };
    Engine {
        url: format!("postgres://ana@{{hosts}}/postgres?sslmode=disable&recipe={recipe}"),
        hosts: vec![format!("127.0.0.1:{port}")],
        tasks: 32,
        ttl: Duration::from_secs(2),
        late: Duration::from_secs(2),
        exceptions: &[],
        server,
        end_connection: None,
    }
}

pub(crate) fn lease() -> Engine {
    engine("lease")
}

pub(crate) fn advisory() -> Engine {
    let end_connection = |label: &str| {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name =";
        assert_eq!(Postgres::shared().psql("postgres", &format!("{end} '{label}'")), "t");
    };
    Engine { end_connection: Some(end_connection), ..engine("advisory") }
}
