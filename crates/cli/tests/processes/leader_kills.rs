//! The leader of three is killed under load, again and again.

use crate::support::{Dev, Http, Load, eventually, measured};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Concurrent clients; each waits for its reply before the next request.
const CLIENTS: u64 = 8;

fn kills() -> usize {
    let set = std::env::var("HOLDFAST_KILLS").ok();
    set.map_or(3, |text| text.parse().expect("HOLDFAST_KILLS is a number"))
}

/// Would fail if a grant were acknowledged before a majority had it on disk, if a restarted node
/// forgot what it promised, if a new leader drew a token again or granted a lock twice, or if a
/// retried request had two effects.
#[test]
fn no_grant_is_lost_and_no_token_is_reused() {
    let dev = Dev::start(3);
    let http = Http::new(Duration::from_secs(5));
    let ports: Vec<u16> = (1..=3).map(|k| dev.port(k)).collect();
    let all_ready = || {
        for port in &ports {
            http.get_ok(*port, "/readyz");
        }
    };
    all_ready();
    let load = Load::start(CLIENTS, ports.clone());
    load.goes_on(50);
    let mut gaps = Vec::new();
    for kill in 1..=kills() {
        let (leader, term) = eventually("there is a leader", || leads(&http, &ports));
        let killed = Instant::now();
        dev.signal(leader, Signal::KILL);
        eventually("another leader is elected", || {
            leads(&http, &ports).filter(|(_, later)| *later > term)
        });
        load.goes_on(50);
        let gap = load.longest_gap(killed);
        measured(&format!("kill {kill}: node {leader}, {} ms without a lock", gap.as_millis()));
        gaps.push(gap.as_millis());
        all_ready();
    }
    gaps.sort_unstable();
    let taken = load.finish(&http);
    measured(&format!(
        "{taken} locks taken, {} leaders killed, ms without a lock: median {}, longest {}",
        gaps.len(),
        gaps[gaps.len() / 2],
        gaps[gaps.len() - 1]
    ));
    assert!(dev.stop(), "holdfast dev did not end in order");
}

/// The node that claims to lead, and its term.
fn leads(http: &Http, ports: &[u16]) -> Option<(u16, u64)> {
    let mut leaders = (1..).zip(ports).filter_map(|(k, port)| {
        let status = http.get(*port, "/v1/status").ok()?.body;
        let leads = status["leader"].is_u64() && status["leader"] == status["node"];
        leads.then(|| Some((k, status["term"].as_u64()?)))?
    });
    let first = leaders.next()?;
    // One may have been deposed without knowing it yet: the later term counts.
    Some(leaders.fold(first, |best, next| if next.1 > best.1 { next } else { best }))
}
