//! Watches on the locks of tickets that have outlived their session.

use super::network::Event;
use crate::calls::Calls;
use crate::session::{WatchId, WatchUpdate};
use crate::watch::{self, Watch};
use bytes::Bytes;
use holdfast_proto::v1::watch_request;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// How long until a watch that no server accepted is retried.
const RETRY: Duration = Duration::from_millis(500);

pub(super) struct Watches {
    calls: Arc<Calls>,
    events: mpsc::Sender<Event>,
    running: BTreeMap<WatchId, AbortHandle>,
}

impl Watches {
    pub(super) fn new(calls: Arc<Calls>, events: mpsc::Sender<Event>) -> Self {
        Self { calls, events, running: BTreeMap::new() }
    }

    pub(super) fn begin(&mut self, watch: WatchId, name: Bytes, token: u64) {
        let (calls, events) = (self.calls.clone(), self.events.clone());
        let task = tokio::spawn(async move { follow(calls, name, token, watch, events).await });
        self.running.insert(watch, task.abort_handle());
    }

    pub(super) fn end(&mut self, watch: WatchId) {
        if let Some(task) = self.running.remove(&watch) {
            task.abort();
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.running.values().for_each(AbortHandle::abort);
    }
}

async fn follow(
    calls: Arc<Calls>,
    name: Bytes,
    token: u64,
    id: WatchId,
    events: mpsc::Sender<Event>,
) {
    let scope = watch_request::Scope::Name(name);
    let mut watch = loop {
        match Watch::begin(calls.clone(), scope.clone()).await {
            Ok(watch) => break watch,
            Err(_) => sleep(RETRY).await,
        }
    };
    let mut news = Some(WatchUpdate::Begun);
    loop {
        if let Some(news) = news.take()
            && events.send(Event::Watched(id, news)).await.is_err()
        {
            return;
        }
        news = match watch.next().await {
            Ok(watch::Event::Missed) => Some(WatchUpdate::Begun),
            Ok(watch::Event::Ended { token: ended, how, .. }) if ended.get() == token => {
                Some(WatchUpdate::Ended(how))
            }
            Ok(watch::Event::RevocationAsked { token: of, asked, .. }) if of.get() == token => {
                Some(WatchUpdate::Revocation(asked))
            }
            Ok(_) => None,
            Err(_) => {
                sleep(RETRY).await;
                None
            }
        };
    }
}
