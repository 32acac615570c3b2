//! A client used without timers, or without any runtime.

use crate::server::Node;
use holdfast_client::Client;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Wakes the waiting thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The simplest possible executor.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Everything that has a timer, and some of everything else.
async fn use_everything(server: &str) {
    let client = Client::builder().timeout(crate::LONG).connect(server).await.unwrap();
    let brief = Duration::from_millis(10);
    let mut guard = client.lock("page").shared().ttl(crate::LONG).acquire().await.unwrap();
    guard.note(Some(b"reading")).await.unwrap();
    guard.upgrade(Some(brief)).await.unwrap();
    assert!(client.lock("page").try_acquire().await.unwrap().is_none());
    assert!(client.lock("page").wait(brief).acquire().await.is_err());
    client.register("page").put("x", &guard).await.unwrap();
    client.register("page").get().await.unwrap();
    let mut watch = client.watch("page").await.unwrap();
    guard.downgrade().await.unwrap();
    watch.next().await.unwrap();
    guard.recovered().await.unwrap();
    let detached = guard.detach().await.map_err(|(_, error)| error).unwrap();
    assert!(!detached.secret.is_empty());

    let outer = client.lock("seat").reentrant().wait(brief).acquire().await.unwrap();
    let inner = client.lock("seat").reentrant().wait(brief).acquire().await.unwrap();
    inner.release().await.unwrap();
    outer.release().await.unwrap();

    let leadership = client.election("scheduler").campaign("me").await.unwrap();
    let mut observer = client.election("scheduler").observe().await.unwrap();
    assert!(observer.next().await.unwrap().is_some());
    let lost = async {
        leadership.lost().await;
        leadership.events().next().await.unwrap();
    };
    tokio::join!(lost, client.clone().close());
}

/// `connect` and `acquire` worked with any executor; `release`, `note`, `upgrade`, `lost`, `get`
/// and `watch` panicked because there were no timers.
#[test]
fn client_needs_no_timers_and_no_runtime() {
    let servers = Runtime::new().unwrap();
    for timeless in [None, Some(Builder::new_current_thread().build().unwrap())] {
        let node = servers.block_on(Node::start());
        match timeless {
            None => block_on(use_everything(&node.url)),
            Some(timeless) => timeless.block_on(use_everything(&node.url)),
        }
        servers.block_on(node.end());
    }
}
