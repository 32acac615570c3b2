//! One run: starts the workers, troubles them, and looks at the files in the end.

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

/// How long a worker may be silent before its locks go to the next.
pub(crate) const LEASE: Duration = Duration::from_millis(500);
/// So many of the troubled workers are killed; the others are stopped, and woken up again.
const ONE_IN: u64 = 4;

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) acknowledged: usize,
    pub(crate) stopped: usize,
    pub(crate) killed: usize,
    pub(crate) refused: usize,
    /// Edits that were acknowledged, and are not in their file.
    pub(crate) lost: usize,
    /// Files in which an edit is missing, or there twice.
    pub(crate) corrupted: usize,
}

pub(crate) fn file_name(number: usize) -> String {
    format!("reports/{}.txt", number + 1)
}

/// What the workers are started with.
struct Crew<'a> {
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
    let (lines, mut said) = mpsc::channel(1_000);
    let mut crew = Crew {
        args,
        fenced,
        server: holdfast.url.clone(),
        folder: folder.path().to_owned(),
        lines,
        started: 0,
    };
    let mut workers = Vec::new();
    for _ in 0..args.workers {
        workers.push(crew.start()?);
    }

    let bar = ProgressBar::new(args.stops as u64).with_message(match fenced {
        true => "with fences   ",
        false => "without fences",
    });
    bar.set_style(ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} stops, {elapsed}")?);
    let mut summary = Summary::default();
    let mut edits: HashMap<String, Vec<String>> = HashMap::new();
    let mut trouble = Box::pin(tokio::time::sleep(LEASE));
    let mut asleep: Option<usize> = None;
    while summary.stopped + summary.killed < args.stops || asleep.is_some() {
        tokio::select! {
            line = said.recv() => {
                let line = line.ok_or("all workers have ended")?;
                take(&line, &mut summary, &mut edits);
            }
            () = &mut trouble => {
                if let Some(worker) = asleep.take() {
                    signal(&workers[worker], Signal::SIGCONT)?;
                } else {
                    let worker = usize::try_from(random() % args.workers as u64)?;
                    if random().is_multiple_of(ONE_IN) {
                        workers[worker].kill().await?;
                        workers[worker] = crew.start()?;
                        summary.killed += 1;
                    } else {
                        signal(&workers[worker], Signal::SIGSTOP)?;
                        asleep = Some(worker);
                        summary.stopped += 1;
                    }
                }
                bar.set_position((summary.stopped + summary.killed) as u64);
                // A stopped one sleeps through its lease; then nobody is troubled for a moment.
                let pause = if asleep.is_some() { LEASE * 3 } else { LEASE / 4 };
                trouble.set(tokio::time::sleep(pause));
            }
        }
    }
    bar.finish();

    // The last one that woke up has some time to do damage.
    tokio::time::sleep(LEASE).await;
    for mut worker in workers {
        worker.kill().await?;
    }
    drop(crew);
    while let Some(line) = said.recv().await {
        take(&line, &mut summary, &mut edits);
    }
    look(folder.path(), &edits, &mut summary).await?;
    Ok(summary)
}

impl Crew<'_> {
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

fn take(line: &str, summary: &mut Summary, edits: &mut HashMap<String, Vec<String>>) {
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

/// Compares each file with what its workers were told.
async fn look(
    folder: &Path,
    edits: &HashMap<String, Vec<String>>,
    summary: &mut Summary,
) -> Result<(), Error> {
    let store = ObjectFence::local(folder).await?;
    for (file, acknowledged) in edits {
        let text = store.read(file).await?.value.unwrap_or_default();
        let text = String::from_utf8(text.to_vec())?;
        let there: HashSet<&str> = text.lines().collect();
        let twice = text.lines().count() - there.len();
        let lost = acknowledged.iter().filter(|edit| !there.contains(edit.as_str())).count();
        summary.lost += lost;
        summary.corrupted += usize::from(lost + twice > 0);
    }
    Ok(())
}

fn signal(worker: &Child, signal: Signal) -> Result<(), Error> {
    let pid = worker.id().ok_or("a worker has ended by itself")?;
    Ok(kill(Pid::from_raw(pid.try_into()?), signal)?)
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}
