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

/// What a worker is told.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Job {
    /// Its name
    #[arg(long)]
    name: String,
    /// Where Holdfast is
    #[arg(long)]
    server: String,
    /// The object store
    #[arg(long)]
    folder: PathBuf,
    /// How many files there are
    #[arg(long)]
    files: usize,
    /// Write whatever another has written meanwhile
    #[arg(long)]
    without_fences: bool,
}

/// Works until it is killed. Each line that it prints is an edit that was acknowledged, or refused.
pub(crate) async fn work(job: Job) -> Result<(), Error> {
    let client = Client::builder().session_ttl(LEASE).connect([&job.server]).await?;
    let fence = ObjectFence::local(&job.folder).await?;
    for number in 0usize.. {
        let file = file_name(number % job.files);
        // A worker that was stopped for long finds its session over, and gets another.
        let Ok(guard) = client.lock(&file).acquire().await else {
            tokio::time::sleep(EDIT).await;
            continue;
        };
        let token = Token::try_from(&guard)?;
        let line = format!("{}-{number}", job.name);
        match edit(&job, &fence, &file, token, &line).await {
            Ok(()) => say(&format!("wrote {file} {line}"))?,
            Err(FenceError::Refused(refused)) => say(&format!("refused {refused}"))?,
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
    // As if nobody compared: with whatever token passes.
    loop {
        let seen = fence.read(file).await?.highest.any.max(token.number());
        match fence.write(file, Token::exclusive(seen)?, text.clone().into()).await {
            Err(FenceError::Refused(_)) => {}
            done => return done,
        }
    }
}

/// In one write, so that a worker that is killed leaves whole lines.
fn say(line: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(format!("{line}\n").as_bytes())?;
    stdout.flush()
}
