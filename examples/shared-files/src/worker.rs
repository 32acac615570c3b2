//! One worker: takes the lock of a file, reads the file, adds a line, writes it.

use crate::Error;
use crate::run::{LEASE, file_name};
use holdfast_client::Client;
use holdfast_fence::object::ObjectFence;
use holdfast_fence::{Error as FenceError, Fence, Token};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How long an edit takes, so that a worker is often stopped in the middle of one.
const EDIT: Duration = Duration::from_millis(5);

/// A worker's arguments.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Job {
    /// Name of the worker
    #[arg(long)]
    name: String,
    /// Holdfast's URL
    #[arg(long)]
    server: String,
    /// Folder of the object store
    #[arg(long)]
    folder: PathBuf,
    /// Number of files
    #[arg(long)]
    files: usize,
    /// Write without comparing tokens
    #[arg(long)]
    without_fences: bool,
}

/// Works until it is killed. Each line that it prints is an edit that was acknowledged, or refused.
pub(crate) async fn work(job: Job) -> Result<(), Error> {
    let client = Client::builder().session_ttl(LEASE).connect([&job.server]).await?;
    let fence = ObjectFence::local(&job.folder).await?;
    for number in 0usize.. {
        let file = file_name(number % job.files);
        // A worker that was stopped finds that its session has expired, and gets a new one.
        let Ok(guard) = client.lock(&file).acquire().await else {
            tokio::time::sleep(EDIT).await;
            continue;
        };
        let token = Token::try_from(&guard)?;
        let line = format!("{}-{number}", job.name);
        match edit(&job, &fence, &file, token, &line).await {
            Ok(()) => say(&format!("wrote {file} {line}"))?,
            Err(FenceError::Refused(refused)) => say(&format!("refused {refused}"))?,
            // The edit may be there or not: it was not acknowledged.
            Err(FenceError::Unknown { .. } | FenceError::Busy { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let _ = guard.release().await;
    }
    Ok(())
}

async fn edit(
    job: &Job,
    fence: &ObjectFence,
    file: &str,
    token: Token,
    line: &str,
) -> Result<(), FenceError> {
    let before = match job.without_fences {
        false => fence.raise(file, token).await?,
        true => fence.read(file).await?,
    };
    tokio::time::sleep(EDIT).await;
    let mut text = before.value.map(|value| value.to_vec()).unwrap_or_default();
    text.extend_from_slice(format!("{line}\n").as_bytes());
    if !job.without_fences {
        return fence.write(file, token, text.into()).await;
    }
    // As if the store did not compare: use whichever token passes.
    loop {
        let seen = fence.read(file).await?.highest.any.max(token.number());
        match fence.write(file, Token::exclusive(seen)?, text.clone().into()).await {
            Err(FenceError::Refused(_)) => {}
            result => return result,
        }
    }
}

/// In one write, so that a worker that is killed leaves whole lines.
fn say(line: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(format!("{line}\n").as_bytes())?;
    stdout.flush()
}
