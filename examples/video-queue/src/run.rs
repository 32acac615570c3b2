//! One run, with locks or without.

use crate::embedded::Holdfast;
use crate::queue::Queue;
use crate::{Args, Error};
use holdfast_client::Client;
use holdfast_fence::object::ObjectFence;
use holdfast_fence::{Fence, Token};
use indicatif::{ProgressBar, ProgressStyle};
use object_store::memory::InMemory;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const WORKERS_PER_MACHINE: usize = 50;
/// How long a worker waits if another one has its chunk.
const BACKOFF: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) chunks: u64,
    pub(crate) chunk_ms: u64,
    pub(crate) processed: u64,
    pub(crate) uploads: u64,
    /// Results that are in the object store in the end.
    pub(crate) stored: u64,
    pub(crate) acquired: u64,
    /// Attempts to acquire a lock that another worker held.
    pub(crate) denied: u64,
}

impl Summary {
    pub(crate) fn done_twice(&self) -> u64 {
        self.processed.saturating_sub(self.chunks)
    }
}

/// What all workers share.
struct Shared {
    queue: Queue,
    store: ObjectFence,
    locked: bool,
    chunk: Duration,
    processed: AtomicU64,
    uploads: AtomicU64,
    acquired: AtomicU64,
    denied: AtomicU64,
}

pub(crate) async fn run(args: &Args, locked: bool) -> Result<Summary, Error> {
    let holdfast = Holdfast::start().await?;
    let shared = Arc::new(Shared {
        queue: Queue::new(args.chunks),
        store: ObjectFence::open(Arc::new(InMemory::new())).await?,
        locked,
        chunk: Duration::from_millis(args.chunk_ms),
        processed: AtomicU64::new(0),
        uploads: AtomicU64::new(0),
        acquired: AtomicU64::new(0),
        denied: AtomicU64::new(0),
    });
    let bar = ProgressBar::new(args.chunks as u64).with_message(match locked {
        true => "with locks   ",
        false => "without locks",
    });
    bar.set_style(ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} chunks, {elapsed}")?);

    let mut workers = JoinSet::new();
    let mut machine = None;
    for number in 0..args.workers {
        // A machine's workers share its session.
        if number.is_multiple_of(WORKERS_PER_MACHINE) {
            machine = Some(Client::connect([&holdfast.url]).await?);
        }
        let client = machine.clone().ok_or("there is no machine")?;
        workers.spawn(shared.clone().work(client));
    }
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            worker = workers.join_next() => match worker {
                Some(worker) => worker??,
                None => break,
            },
            _ = tick.tick() => bar.set_position((args.chunks - shared.queue.left()) as u64),
        }
    }
    bar.set_position(args.chunks as u64);
    bar.finish();

    let mut stored = 0;
    for chunk in 0..args.chunks {
        stored += u64::from(shared.store.read(&result_name(chunk)).await?.value.is_some());
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Ok(Summary {
        chunks: args.chunks as u64,
        chunk_ms: args.chunk_ms,
        processed: count(&shared.processed),
        uploads: count(&shared.uploads),
        stored,
        acquired: count(&shared.acquired),
        denied: count(&shared.denied),
    })
}

fn result_name(chunk: usize) -> String {
    format!("movie/{chunk:05}.mp4")
}

impl Shared {
    /// Takes chunks until none is left.
    async fn work(self: Arc<Self>, client: Client) -> Result<(), Error> {
        while let Some(chunk) = self.queue.next(RandomState::new().hash_one(0)) {
            if !self.locked {
                let result = self.process(chunk).await;
                // Everybody shows the same token, so the store refuses nobody.
                self.upload(chunk, Token::exclusive(1)?, result).await?;
                self.queue.done(chunk);
                continue;
            }
            let Some(guard) = client.lock(format!("chunk/{chunk}")).try_acquire().await? else {
                self.denied.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(BACKOFF).await;
                continue;
            };
            self.acquired.fetch_add(1, Ordering::Relaxed);
            let token = Token::try_from(&guard)?;
            // Raise before reading: from here on, no earlier holder can upload.
            let found = self.store.raise(&result_name(chunk), token).await?;
            if found.value.is_none() {
                let result = self.process(chunk).await;
                self.upload(chunk, token, result).await?;
            }
            self.queue.done(chunk);
            guard.release().await?;
        }
        Ok(())
    }

    async fn upload(&self, chunk: usize, token: Token, result: String) -> Result<(), Error> {
        self.store.write(&result_name(chunk), token, result.into()).await?;
        self.uploads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Stands for work that takes time.
    async fn process(&self, chunk: usize) -> String {
        tokio::time::sleep(self.chunk).await;
        self.processed.fetch_add(1, Ordering::Relaxed);
        format!("the frames of chunk {chunk}")
    }
}
