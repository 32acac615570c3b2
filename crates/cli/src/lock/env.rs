//! What a command under a lock finds in its environment, and what it says to a wrapper within.

use crate::exit::Problem;
use crate::server_flags::ServerFlags;
use holdfast_client::Guard;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const HOLDING: &str = "HOLDFAST_HOLDING";
const HOLDING_AT: &str = "HOLDFAST_HOLDING_AT";

/// The tokens that wrappers around this one keep while it waits, with the same servers.
pub(super) fn kept_outside(server: &ServerFlags) -> Result<Vec<u64>, Problem> {
    // Numbers of another cluster mean nothing to this one.
    if std::env::var(HOLDING_AT).ok().is_none_or(|at| at != server.words()) {
        return Ok(Vec::new());
    }
    let text = std::env::var(HOLDING).unwrap_or_default();
    let tokens = text.split(',').filter(|token| !token.is_empty());
    tokens.map(|token| token.parse().ok()).collect::<Option<_>>().ok_or_else(|| {
        Problem::usage(format!("{HOLDING} is `{text}`, not tokens separated by commas"))
            .hint("the wrapper sets it itself: leave it alone")
    })
}

/// What the command finds.
pub(super) fn variables(
    names: &[OsString],
    guard: &Guard,
    outside: &[u64],
    server: &ServerFlags,
) -> Vec<(&'static str, OsString)> {
    let tokens = outside.iter().copied().chain([guard.token().get()]);
    let tokens: Vec<String> = tokens.map(|token| token.to_string()).collect();
    let secret: String = guard.secret().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut variables = vec![
        ("HOLDFAST_TOKEN", guard.token().to_string().into()),
        ("HOLDFAST_SECRET", secret.into()),
        ("HOLDFAST_LOCK", names.join(OsStr::new("\n"))),
        (HOLDING, tokens.join(",").into()),
        (HOLDING_AT, server.words().into()),
        ("HOLDFAST_SERVER", server.words().into()),
        ("HOLDFAST_NEEDS_RECOVERY", if guard.needs_recovery() { "1" } else { "" }.into()),
    ];
    if let Some(file) = server.password_file() {
        variables.push(("HOLDFAST_PASSWORD_FILE", file.into()));
    }
    let ending = guard.ending();
    let text = |bytes: Option<&[u8]>| {
        // A variable can't hold a zero.
        let bytes: Vec<u8> = bytes.unwrap_or_default().iter().map(|b| (*b).max(1)).collect();
        OsStr::from_bytes(&bytes).to_owned()
    };
    variables.extend([
        ("HOLDFAST_ENDED", ending.map_or(String::new(), |ending| ending.how.to_string()).into()),
        ("HOLDFAST_ENDED_TOKEN", ending.map_or(String::new(), |e| e.token.to_string()).into()),
        ("HOLDFAST_ENDED_LABEL", text(ending.and_then(|ending| ending.label.as_deref()))),
        ("HOLDFAST_ENDED_NOTE", text(ending.and_then(|ending| ending.note.as_deref()))),
    ]);
    variables
}
