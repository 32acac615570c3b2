//! Which store a test is about: as text, so that a child process can open the same one.

use super::s3;
use super::service::ServiceClient;
use bytes::Bytes;
use holdfast_client::{Client, Guard};
use holdfast_fence::object::ObjectFence;
use holdfast_fence::postgres::Postgres;
use holdfast_fence::register::Register;
use holdfast_fence::sqlite::Sqlite;
use holdfast_fence::{Error, Fence, Token};
use std::sync::Arc;

/// The resource that all of these tests read and write.
pub(crate) const LEDGER: &str = "ledger";

/// Opens `sqlite:PATH`, `disk:PATH`, `s3:URL`, `postgres:CONFIG`, `http:URL` or `register:`.
pub(crate) async fn open<'a>(
    store: &str,
    client: &'a Client,
    guard: &'a Guard,
) -> Result<Box<dyn Fence + 'a>, Error> {
    let (kind, place) = store.split_once(':').unwrap();
    Ok(match kind {
        "sqlite" => Box::new(Sqlite::open(place)?),
        "disk" => Box::new(ObjectFence::local(place).await?),
        "s3" => Box::new(ObjectFence::open(Arc::new(s3::client(place))).await?),
        "postgres" => Box::new(Postgres::connect(place).await?),
        "http" => Box::new(ServiceClient { url: place.into() }),
        "register" => Box::new(Register::new(client, guard)?),
        _ => panic!("no store is called {kind}"),
    })
}

/// Writes whatever the fence has seen, like a store without a fence.
pub(crate) async fn write_unfenced(store: &str, client: &Client, guard: &Guard, value: Bytes) {
    match store.split_once(':').unwrap() {
        ("http", url) => {
            ServiceClient { url: url.into() }.write_unfenced(LEDGER, value).await;
        }
        ("register", _) => {
            // The newest ticket of any lock is above everything that the register has seen.
            let newest = loop {
                // A holder that was stopped finds its session over first.
                if let Ok(newest) = client.lock("unrelated").acquire().await {
                    break newest;
                }
            };
            let register = Register::new(client, &newest).unwrap();
            register.write(LEDGER, register.token(), value).await.unwrap();
        }
        _ => {
            let fence = open(store, client, guard).await.unwrap();
            let seen = fence.read(LEDGER).await.unwrap().highest.any.max(1);
            fence.write(LEDGER, Token::exclusive(seen).unwrap(), value).await.unwrap();
        }
    }
}

pub(crate) async fn read(fence: &dyn Fence) -> String {
    text(fence.read(LEDGER).await.unwrap().value)
}

pub(crate) fn text(value: Option<Bytes>) -> String {
    value.map(|value| String::from_utf8(value.to_vec()).unwrap()).unwrap_or_default()
}
