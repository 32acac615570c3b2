//! Records what a real Redis replies, for a test that sends the same to Holdfast.
//!
//! Run it where `redis-server` 7.0.15 is installed, and review the diff:
//!
//! ```sh
//! cargo test --release -p holdfast-redis --test record -- --ignored
//! git diff crates/redis/tests/recorded
//! ```
//!
//! To add a conversation, write what is sent into `recorded/redis-7.0.15.txt` and record again. The
//! lines that say what Holdfast replies instead are kept. The test that replays it against Holdfast
//! is `crates/cli/tests/processes/redis_recorded.rs`.

#[path = "support/conversation.rs"]
#[allow(dead_code, reason = "recording does not replay")]
mod conversation;
#[path = "support/redis.rs"]
mod redis;

use conversation::Party;
use std::path::Path;

#[test]
#[ignore = "needs redis-server, and writes a file"]
fn record_a_real_redis() {
    let server = redis::Running::start();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/redis-7.0.15.txt");
    let text = std::fs::read_to_string(&file).unwrap();
    let for_people = text.split("\n# ").next().unwrap().trim_end();
    let mut conversations = conversation::read(&text);
    let mut party = Party::new(server.address());
    for conversation in &mut conversations {
        party.record(conversation);
    }
    let text = format!("{for_people}\n{}", conversation::write(&conversations));
    std::fs::write(&file, text).unwrap();
}
