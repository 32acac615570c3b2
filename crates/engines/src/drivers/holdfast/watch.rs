//! Notices at once when a held lock has ended: an operator can break it, and the next renewal may
//! be far off.

use super::calls::Calls;
use super::hold::check;
use crate::error::Error;
use holdfast_client::{Client, Event};
use holdfast_proto::v1 as proto;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Most locks are held for less than this, and end before a watch would be of use.
const WATCHED_AFTER: Duration = Duration::from_millis(500);

/// The pause before a failed watch is started again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// How many locks a process watches at once, as each watch is a stream. Beyond this, the end of a
/// lock is noticed when it is renewed.
const WATCHES_MAX: usize = 256;

static WATCHES: AtomicUsize = AtomicUsize::new(0);

/// Follows one lock in the background until it is dropped.
pub(super) struct Watcher {
    ended: watch::Receiver<Option<String>>,
    task: AbortHandle,
}

impl Watcher {
    pub(super) fn start(client: Client, calls: Arc<Calls>, own: proto::TicketRef) -> Self {
        let (sender, ended) = watch::channel(None);
        let task = tokio::spawn(async move {
            sleep(WATCHED_AFTER).await;
            let Some(_counted) = Counted::one_more() else { return };
            let why = follow(&client, &calls, &own).await;
            let _ = sender.send(Some(why));
        });
        Self { ended, task: task.abort_handle() }
    }

    /// Resolves, with the reason, when the lock has ended. Never if it is not being watched.
    pub(super) async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        let why = ended.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // It is not being watched.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(client: &Client, calls: &Calls, own: &proto::TicketRef) -> String {
    loop {
        if let Ok(mut events) = client.watch(&own.name).await {
            // It may have ended before the watch began, or while events were missed.
            let mut may_be_over = true;
            loop {
                if may_be_over && let Err(Error::NotHeld(why)) = check(calls, own).await {
                    return why;
                }
                match events.next().await {
                    Ok(Event::Ended { token, how, .. }) if token.get() == own.token => {
                        return format!("the server has ended it: {how}");
                    }
                    Ok(event) => may_be_over = event == Event::Missed,
                    Err(_) => break,
                }
            }
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Counts one watch for as long as it lives.
struct Counted;

impl Counted {
    fn one_more() -> Option<Self> {
        let counted = Self;
        let before = WATCHES.fetch_add(1, Ordering::Relaxed);
        (before < WATCHES_MAX).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        WATCHES.fetch_sub(1, Ordering::Relaxed);
    }
}
