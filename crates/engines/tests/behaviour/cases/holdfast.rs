//! What only Holdfast has.

use crate::engine::{run, unique};
use crate::servers::holdfast::{Node, holdfast};
use holdfast_locks::{Error, Locks};
use holdfast_proto::v1::ForceRequest;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_server::TlsFiles;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::Path;
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

/// An authority, and a certificate for `seats.test` that serves as the node's and as the client's.
fn write_certificates(folder: &Path) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(vec!["seats.test".to_owned()]).unwrap();
    let cert = cert.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().pem();
    for (name, pem) in [("ca", ca_pem), ("cert", cert), ("key", key.serialize_pem())] {
        std::fs::write(folder.join(name), pem).unwrap();
    }
}

/// `holdfasts://` checks the servers' certificate, and presents its own.
#[tokio::test]
async fn mutual_tls() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    let [ca, cert, key] = ["ca", "cert", "key"].map(|name| folder.path().join(name));
    let shown = [&ca, &cert, &key].map(|path| path.display().to_string());
    let files = TlsFiles { cert, key, client_ca: Some(ca.clone()), ca };
    let node = tokio::task::spawn_blocking(move || Node::start_with(Some(files))).await.unwrap();
    let host = node.address();
    let [ca, cert, key] = shown;
    let named = "server_name=seats.test";

    for scheme in ["holdfasts", "https"] {
        let url = format!("{scheme}://{host}?ca={ca}&cert={cert}&key={key}&{named}");
        let locks = Locks::connect(&url).await.unwrap();
        let guard = locks.lock("seat").ttl(Duration::from_secs(30)).acquire().await.unwrap();
        // By a call of its own, beside the session.
        assert_eq!(locks.inspect("seat").await.unwrap().unwrap().token, guard.token());
        guard.release().await.unwrap();
        locks.close().await;
    }
    for (url, why) in [
        (format!("holdfasts://{host}?ca={ca}"), "certificate"),
        (format!("holdfasts://{host}?{named}"), "certificate"),
        (format!("holdfasts://{host}?ca={ca}.none&{named}"), "No such file"),
        (format!("holdfasts://{host}?cert={cert}&{named}"), "go together"),
        (format!("holdfast://{host}?ca={ca}"), "`ca`"),
        (format!("holdfast://{host}"), "holdfasts://"),
    ] {
        let connecting = Locks::builder().timeout(Duration::from_secs(2)).connect(&url);
        let error = connecting.await.unwrap_err().to_string();
        assert!(error.contains(why), "{url}: {error}");
    }
}
