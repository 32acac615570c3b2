//! Tokens from any lock: the drivers of `holdfast-locks`, including those that have none.

use crate::server::Node;
use crate::support::postgres::Server;
use holdfast_fence::object::ObjectFence;
use holdfast_fence::{Fence, InvalidToken, Token};
use holdfast_locks::{Guard, Locks};
use object_store::memory::InMemory;
use std::sync::Arc;

fn token(guard: &Guard) -> Result<Token, InvalidToken> {
    Token::exclusive(guard.token().map(u64::from))
}

/// Two holders, one after the other: the second supersedes the first.
async fn the_next_holder_supersedes_the_last(url: &str) {
    let locks = Locks::connect(url).await.unwrap();
    let fence = ObjectFence::open(Arc::new(InMemory::new())).await.unwrap();
    let first = locks.lock("ledger").acquire().await.unwrap();
    let old = token(&first).unwrap();
    fence.write("ledger", old, "100".into()).await.unwrap();
    first.release().await.unwrap();
    let second = locks.lock("ledger").acquire().await.unwrap();
    let new = token(&second).unwrap();
    fence.raise("ledger", new).await.unwrap();
    let error = fence.write("ledger", old, "50".into()).await.unwrap_err();
    let refused = error.refused().expect("refused");
    assert_eq!((refused.shown, refused.later()), (old, new.number()));
    fence.write("ledger", new, "70".into()).await.unwrap();
    second.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_in_memory_have_tokens() {
    the_next_holder_supersedes_the_last("memory:").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_holdfast_have_tokens() {
    let node = Node::start().await;
    the_next_holder_supersedes_the_last(&node.url.replace("http://", "holdfast://")).await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: ./test fences"]
async fn postgresql_leases_have_tokens_and_advisory_locks_do_not() {
    let server = Server::start().await;
    let url = server.url();
    the_next_holder_supersedes_the_last(&url).await;
    let locks = Locks::connect(&format!("{url}?recipe=advisory")).await.unwrap();
    let guard = locks.lock("ledger").acquire().await.unwrap();
    let error = token(&guard).unwrap_err();
    assert_eq!(error, InvalidToken::Missing);
    let printed = "the holder has no fencing token. Use a lock that has tokens";
    assert_eq!(error.to_string(), printed);
    guard.release().await.unwrap();
}
