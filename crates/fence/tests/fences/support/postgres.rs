//! A PostgreSQL server on a free port, in a temporary folder.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const INSTALL: &str = "PostgreSQL is missing. Install it with: sudo apt-get install -y postgresql";

/// The server; it ends when this is dropped.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let programs = programs();
        let folder = tempfile::tempdir().unwrap();
        if let Some((user, group)) = user() {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let made = command(&programs, "initdb")
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--pgdata"])
            .arg(folder.path().join("data"))
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success(), "initdb failed");
        let mut server = Self { folder, programs, port: 0, process: None };
        for _ in 0..20 {
            server.port = free_port();
            server.run();
            if server.answers().await {
                return server;
            }
            server.end();
        }
        panic!("PostgreSQL does not start");
    }

    /// The connection string.
    pub(crate) fn config(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) fn psql(&self) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--dbname", &self.config()]);
        psql
    }

    /// Like a power failure: without closing anything.
    pub(crate) fn crash(&mut self) {
        self.signal(Signal::SIGQUIT);
    }

    pub(crate) async fn start_again(&mut self) {
        self.run();
        assert!(self.answers().await, "PostgreSQL does not start again");
    }

    fn run(&mut self) {
        let data = self.folder.path().join("data");
        let process = command(&self.programs, "postgres")
            .arg("-D")
            .arg(data)
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-k", ""])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
    }

    async fn answers(&mut self) -> bool {
        let ended =
            |process: &mut Option<Child>| process.as_mut().unwrap().try_wait().unwrap().is_some();
        for _ in 0..600 {
            if tokio_postgres::connect(&self.config(), tokio_postgres::NoTls).await.is_ok() {
                return !ended(&mut self.process);
            }
            if ended(&mut self.process) {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        false
    }

    fn end(&mut self) {
        self.signal(Signal::SIGINT);
    }

    fn signal(&mut self, signal: Signal) {
        let Some(mut process) = self.process.take() else { return };
        let _ = kill(Pid::from_raw(process.id().try_into().unwrap()), signal);
        let _ = process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Debian keeps its programs in one folder per version, outside of the PATH.
fn programs() -> PathBuf {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> = debian.map(|version| version.path().join("bin")).collect();
    folders.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    let whole = |folder: &PathBuf| {
        ["initdb", "postgres", "psql"].iter().all(|program| folder.join(program).is_file())
    };
    folders.into_iter().rfind(whole).expect(INSTALL)
}

/// Which user the server runs as: PostgreSQL refuses to run as root.
fn user() -> Option<(u32, u32)> {
    let id = |arguments: &[&str]| -> u32 {
        let printed = Command::new("id").args(arguments).output().unwrap().stdout;
        String::from_utf8(printed).unwrap().trim().parse().expect(INSTALL)
    };
    (id(&["-u"]) == 0).then(|| (id(&["-u", "postgres"]), id(&["-g", "postgres"])))
}

fn command(programs: &Path, program: &str) -> Command {
    let program = programs.join(program);
    match user() {
        None => Command::new(program),
        Some((user, group)) => {
            use std::os::unix::process::CommandExt;
            let mut command = Command::new(program);
            command.uid(user).gid(group).current_dir("/");
            command
        }
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
