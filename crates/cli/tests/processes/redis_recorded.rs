//! A recorded conversation with a real Redis, replayed against Holdfast's Redis door: the same
//! bytes in, the same bytes out. Differences are in the recording, with the reason.

#[path = "../../../redis/tests/support/conversation.rs"]
#[allow(dead_code, reason = "nothing is recorded here")]
mod conversation;

use crate::support::{Dev, Http, TIMEOUT};
use conversation::{Party, read};
use std::net::Ipv4Addr;

const RECORDED: &str = include_str!("../../../redis/tests/recorded/redis-7.0.15.txt");

/// How many differences are shown at once.
const DIFFERENCES_SHOWN: usize = 20;

/// Would fail if the door's replies differed from Redis's in a single byte.
#[test]
fn replies_match_the_recorded_redis() {
    let dev = Dev::start(1);
    Http::new(TIMEOUT).get_ok(dev.port(1), "/readyz");
    let conversations = read(RECORDED);
    assert!(conversations.len() > 200, "the recording was not found");
    assert_eq!(
        conversation::write(&conversations),
        tail(),
        "the recording is not as it is written"
    );
    let mut party = Party::new((Ipv4Addr::LOCALHOST, dev.port(1) + 1).into());
    let differences: Vec<String> = conversations
        .iter()
        .filter_map(|conversation| {
            let difference = party.replay(conversation).err()?;
            Some(format!("# {}\n{difference}\n", conversation.title))
        })
        .collect();
    let some = differences.iter().take(DIFFERENCES_SHOWN).cloned().collect::<Vec<_>>();
    assert!(
        some.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        conversations.len(),
        some.join("\n")
    );
}

/// The recording without what comes before its first conversation.
fn tail() -> &'static str {
    RECORDED.find("\n\n# ").map_or("", |at| &RECORDED[at + 1..])
}
