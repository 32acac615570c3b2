//! What the process tests share: nodes that are started and stopped, an HTTP client, and clients
//! that record what they were told.

mod book;
mod cluster;
mod dev;
pub(crate) mod guide;
mod http;
mod load;
mod node;
mod ports;

pub(crate) use book::Book;
pub(crate) use cluster::{Cluster, new_key};
pub(crate) use dev::Dev;
pub(crate) use guide::follow;
#[allow(unused_imports, reason = "the tests of commands need it")]
pub(crate) use guide::{outside_cargo, run_apart};
pub(crate) use http::{Held, Http, Reply, tokens, unique};
pub(crate) use load::Load;
pub(crate) use node::Node;
pub(crate) use ports::Ports;

use std::io::Write;
use std::time::{Duration, Instant};

/// The program under test.
pub(crate) const HOLDFAST: &str = env!("CARGO_BIN_EXE_holdfast");

/// How long anything may take. Far more than it does take: the machine may be busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Prints a figure, even if the test passes: direct output to stderr is not captured. `./test`
/// passes on lines of this form.
pub(crate) fn measured(what: &str) {
    // A figure that can't be printed is no reason to fail.
    let _ = writeln!(std::io::stderr(), "measured: {what}");
}

/// Retries until there is a result; the test fails if there never is.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < until, "this did not happen within {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
