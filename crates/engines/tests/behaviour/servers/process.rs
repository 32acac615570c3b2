//! A server process on its own loopback ports, which ends with the test run even if that is killed.

use super::Server;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longer than any server takes to start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a command until stdin closes, which it does when this process dies, then kills it and
/// removes its folder; after the word `keep` the folder stays.
const PARENT: &str = r#"
folder=$1; shift
"$@" </dev/null >"$folder/log" 2>&1 &
server=$!
read -r word
kill -9 $server; wait $server
[ "$word" = keep ] || rm -rf "$folder"
"#;

pub(crate) struct Process {
    folder: PathBuf,
    command: Vec<String>,
    serves: Box<dyn Fn() -> bool + Send + Sync>,
    parent: Mutex<Option<Child>>,
}

impl Process {
    /// Starts a command whose files go to a new temporary folder, and returns when it is ready.
    pub(crate) fn start(
        command: impl FnOnce(&Path) -> Vec<String>,
        serves: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::Builder::new().prefix("holdfast-locks-").tempdir().unwrap().keep();
        let command = command(&folder);
        let (serves, parent) = (Box::new(serves), Mutex::new(None));
        let process = Self { folder, command, serves, parent };
        process.run();
        process
    }

    fn run(&self) {
        let parent = Command::new("sh")
            .args(["-c", PARENT, "sh"])
            .arg(&self.folder)
            .args(&self.command)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        *self.parent.lock().unwrap() = Some(parent);
        let start = Instant::now();
        while !(self.serves)() {
            if start.elapsed() > START_TIMEOUT {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                panic!("{} does not serve:\n{log}", self.command.join(" "));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn end(&self, word: &str) {
        let Some(mut parent) = self.parent.lock().unwrap().take() else { return };
        let mut input = parent.stdin.take().unwrap();
        let _ = writeln!(input, "{word}");
        drop(input);
        parent.wait().unwrap();
    }
}

impl Server for Process {
    fn kill(&self) {
        self.end("keep");
    }

    fn restart(&self) {
        self.run();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end("remove");
        // If it was killed before, nobody else removes it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < START_TIMEOUT, "not so: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A loopback port that was free just now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server's reply to these bytes; empty if there is none.
pub(crate) fn ask(port: u16, request: &str) -> String {
    use std::io::Read;
    const TIMEOUT: Duration = Duration::from_secs(2);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, TIMEOUT) else {
        return String::new();
    };
    let mut answer = Vec::new();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    if stream.write_all(request.as_bytes()).is_ok() {
        let _ = stream.read_to_end(&mut answer);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The path of a program from a Debian package.
pub(crate) fn program(name: &str, package: &str) -> String {
    let folders = std::env::var("PATH").unwrap_or_default();
    let found = folders.split(':').map(|folder| Path::new(folder).join(name));
    let found = found.filter(|path| path.exists()).find_map(|path| path.to_str().map(Into::into));
    found.unwrap_or_else(|| panic!("{name} is not installed: apt-get install {package}"))
}
