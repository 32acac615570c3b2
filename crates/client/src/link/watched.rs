//! Tickets that outlived the session they were taken in. The server tells what happens to a ticket
//! to its own session only, which is over; so their locks are watched.

use super::desk::Desk;
use super::held::Followed;
use crate::calls::Calls;
use crate::error::How;
use crate::fate::Revocation;
use crate::watch::{Event, Watch};
use bytes::Bytes;
use holdfast_proto::v1::watch_request;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How many locks are watched at once. Beyond it, the end of a ticket is heard when it is renewed.
const WATCHERS_MAX: usize = 256;

/// How long until a watch that no server takes is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What watchers have to say, and the task has not heard yet.
pub(super) const NEWS_MAX: usize = 1_024;

/// Something that happened to a ticket whose lock is watched.
pub(super) struct Watched {
    token: u64,
    what: What,
}

enum What {
    /// The watch has begun: something may have happened before.
    Begun,
    Ended(How),
    AskedToLetGo(Revocation),
}

/// A watch of one ticket's lock, until this is dropped.
pub(super) struct Watcher(JoinHandle<()>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Desk {
    /// A new session has begun. What was taken in an earlier one may be over already, so it is
    /// renewed at once; and from now on it is watched.
    pub(super) fn follow_survivors(&mut self) {
        let Some(session) = self.session.as_ref().map(|session| &session.secret) else { return };
        let mut watchers = self.held.with_own_lease().filter(|(_, f)| f.watcher.is_some()).count();
        for followed in self.held.values_mut() {
            if followed.session == *session {
                continue;
            }
            let Followed { own_lease: Some(own), watcher, renew_now, .. } = followed else {
                continue;
            };
            *renew_now = true;
            if watcher.is_none() && watchers < WATCHERS_MAX {
                watchers += 1;
                let watches =
                    watch(self.calls.clone(), own.name.clone(), own.token, self.news.clone());
                *watcher = Some(Watcher(tokio::spawn(watches)));
            }
        }
    }

    pub(super) fn hear_watched(&mut self, Watched { token, what }: Watched) {
        let Some(followed) = self.held.get_mut(token) else { return };
        match what {
            What::Begun => {
                followed.renew_now = true;
                self.look_soon();
            }
            What::Ended(how) => self.ended(token, how),
            What::AskedToLetGo(asked) => {
                followed.fate.ask_to_let_go(asked);
            }
        }
    }
}

async fn watch(calls: Arc<Calls>, name: Bytes, token: u64, news: mpsc::Sender<Watched>) {
    let scope = watch_request::Scope::Name(name);
    let mut watch = loop {
        match Watch::begin(calls.clone(), scope.clone()).await {
            Ok(watch) => break watch,
            Err(_) => sleep(RETRY).await,
        }
    };
    let mut what = Some(What::Begun);
    loop {
        if let Some(what) = what.take()
            && news.send(Watched { token, what }).await.is_err()
        {
            return;
        }
        what = match watch.next().await {
            Ok(Event::Missed) => Some(What::Begun),
            Ok(Event::Ended { token: ended, how, .. }) if ended.get() == token => {
                Some(What::Ended(how))
            }
            Ok(Event::RevocationAsked { token: of, asked, .. }) if of.get() == token => {
                Some(What::AskedToLetGo(asked))
            }
            Ok(_) => None,
            Err(_) => {
                sleep(RETRY).await;
                None
            }
        };
    }
}
