//! What only Holdfast has.

use crate::engine::{run, unique};
use crate::servers::holdfast::holdfast;
use holdfast_locks::Error;
use holdfast_proto::v1::ForceRequest;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use std::time::Duration;
use tonic::transport::Channel;

/// An operator broke a lock, and its holder went on: it noticed at its next renewal, a third of the
/// TTL later, while another client held the lock.
#[test]
fn forced_lock_is_lost_immediately() {
    run(holdfast, "force", async |engine| {
        let (locks, name) = (engine.connect().await, unique("forced"));
        let ttl = Duration::from_secs(3600);
        for fixed in [false, true] {
            let lock = locks.lock(&name).ttl(ttl);
            let lock = if fixed { lock.fixed() } else { lock };
            let guard = lock.acquire().await.unwrap();
            // Long enough to be watched, or not.
            tokio::time::sleep(Duration::from_millis(if fixed { 0 } else { 1500 })).await;
            let address = format!("http://{}", engine.hosts[0]);
            let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
            let mut operator = HoldfastClient::new(channel);
            let (by, reason) = ("ana".into(), "it hangs".into());
            let force = ForceRequest { name: name.clone().into(), token: None, by, reason };
            assert_eq!(operator.force(force).await.unwrap().into_inner().count, 1);
            let lost = tokio::time::timeout(Duration::from_secs(30), guard.lost()).await;
            lost.expect("the holder does not hear of it");
            assert!(guard.is_lost());
            let released = guard.release().await;
            assert!(matches!(released, Err(Error::NotHeld(_))), "{released:?}");
        }
    });
}
