//! One run: starts the workers, stops and kills some of them, and checks the files in the end.

use crate::embedded::Holdfast;
use crate::{Args, Error};
use holdfast_fence::Fence;
use holdfast_fence::object::ObjectFence;
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// How long a worker may be silent before its locks go to the next in line.
pub(crate) const LEASE: Duration = Duration::from_millis(500);
/// One in so many is killed; the others are stopped, and resumed later.
const KILLED_ONE_IN: u64 = 4;

/// The outcome of a run.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) acknowledged: usize,
    pub(crate) stopped: usize,
    pub(crate) killed: usize,
    pub(crate) refused: usize,
    /// Edits that were acknowledged but are not in their file.
    pub(crate) lost: usize,
    /// Files in which an edit is missing or duplicated.
    pub(crate) corrupted: usize,
}

pub(crate) fn file_name(number: usize) -> String {
    format!("reports/{}.txt", number + 1)
}

/// Starts workers.
struct Spawner<'a> {
    args: &'a Args,
    fenced: bool,
    server: String,
    folder: PathBuf,
    lines: mpsc::Sender<String>,
    started: usize,
}

pub(crate) async fn run(args: &Args, fenced: bool) -> Result<Summary, Error> {
    let holdfast = Holdfast::start().await?;
    let folder = tempfile::tempdir()?;
    let (lines, mut printed) = mpsc::channel(1_000);
    let mut spawner = Spawner {
        args,
        fenced,
        server: holdfast.url.clone(),
        folder: folder.path().to_owned(),
        lines,
        started: 0,
    };
    let mut workers = Vec::new();
    for _ in 0..args.workers {
        workers.push(spawner.start()?);
    }

    let bar = ProgressBar::new(args.stops as u64).with_message(match fenced {
        true => "with fences   ",
        false => "without fences",
    });
    bar.set_style(ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} stops, {elapsed}")?);
    let mut summary = Summary::default();
    let mut edits: HashMap<String, Vec<String>> = HashMap::new();
    let mut next_event = Box::pin(tokio::time::sleep(LEASE));
    let mut stopped: Option<usize> = None;
    while summary.stopped + summary.killed < args.stops || stopped.is_some() {
        tokio::select! {
            line = printed.recv() => {
                let line = line.ok_or("all workers have ended")?;
                record(&line, &mut summary, &mut edits);
            }
            () = &mut next_event => {
                if let Some(worker) = stopped.take() {
                    signal(&workers[worker], Signal::SIGCONT)?;
                } else {
                    let worker = usize::try_from(random() % args.workers as u64)?;
                    if random().is_multiple_of(KILLED_ONE_IN) {
                        workers[worker].kill().await?;
                        workers[worker] = spawner.start()?;
                        summary.killed += 1;
                    } else {
                        signal(&workers[worker], Signal::SIGSTOP)?;
                        stopped = Some(worker);
                        summary.stopped += 1;
                    }
                }
                bar.set_position((summary.stopped + summary.killed) as u64);
                // A stopped worker sleeps through its lease; then all of them run for a moment.
                let pause = if stopped.is_some() { LEASE * 3 } else { LEASE / 4 };
                next_event.set(tokio::time::sleep(pause));
            }
        }
    }
    bar.finish();

    // The last one that was resumed gets some time to do damage.
    tokio::time::sleep(LEASE).await;
    for mut worker in workers {
        worker.kill().await?;
    }
    drop(spawner);
    while let Some(line) = printed.recv().await {
        record(&line, &mut summary, &mut edits);
    }
    check_files(folder.path(), &edits, &mut summary).await?;
    Ok(summary)
}

impl Spawner<'_> {
    fn start(&mut self) -> Result<Child, Error> {
        self.started += 1;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "--name", &format!("w{}", self.started)]);
        command.args(["--server", &self.server, "--files", &self.args.files.to_string()]);
        command.arg("--folder").arg(&self.folder);
        if !self.fenced {
            command.arg("--without-fences");
        }
        let mut worker = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stdout = worker.stdout.take().ok_or("a worker has no output")?;
        let lines = self.lines.clone();
        tokio::spawn(async move {
            let mut stdout = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = stdout.next_line().await {
                let _ = lines.send(line).await;
            }
        });
        Ok(worker)
    }
}

/// Takes note of what a worker has printed.
fn record(line: &str, summary: &mut Summary, edits: &mut HashMap<String, Vec<String>>) {
    match line.split_once(' ') {
        Some(("wrote", edit)) => {
            if let Some((file, edit)) = edit.split_once(' ') {
                summary.acknowledged += 1;
                edits.entry(file.into()).or_default().push(edit.into());
            }
        }
        Some(("refused", _)) => summary.refused += 1,
        _ => {}
    }
}

/// Compares each file with the edits that were acknowledged.
async fn check_files(
    folder: &Path,
    edits: &HashMap<String, Vec<String>>,
    summary: &mut Summary,
) -> Result<(), Error> {
    let store = ObjectFence::local(folder).await?;
    for (file, acknowledged) in edits {
        let text = store.read(file).await?.value.unwrap_or_default();
        let text = String::from_utf8(text.to_vec())?;
        let lines: HashSet<&str> = text.lines().collect();
        let duplicated = text.lines().count() - lines.len();
        let lost = acknowledged.iter().filter(|edit| !lines.contains(edit.as_str())).count();
        summary.lost += lost;
        summary.corrupted += usize::from(lost + duplicated > 0);
    }
    Ok(())
}

fn signal(worker: &Child, signal: Signal) -> Result<(), Error> {
    let pid = worker.id().ok_or("a worker has exited on its own")?;
    Ok(kill(Pid::from_raw(pid.try_into()?), signal)?)
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}
