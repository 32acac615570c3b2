//! The environment variables of a command under a lock, which a wrapper started by that command
//! reads too.

use super::target::{Engine, ON};
use crate::exit::Problem;
use crate::server_flags::ServerFlags;
use holdfast_client::Guard;
use holdfast_locks::{Guard as EngineGuard, Promises};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const HOLDING: &str = "HOLDFAST_HOLDING";
const HOLDING_AT: &str = "HOLDFAST_HOLDING_AT";
const NEEDS_RECOVERY: &str = "HOLDFAST_NEEDS_RECOVERY";
const ENDED: &str = "HOLDFAST_ENDED";
const ENDED_TOKEN: &str = "HOLDFAST_ENDED_TOKEN";
const ENDED_LABEL: &str = "HOLDFAST_ENDED_LABEL";
const ENDED_NOTE: &str = "HOLDFAST_ENDED_NOTE";

/// The tokens held by wrappers around this one, on the same servers.
pub(super) fn kept_outside(server: &ServerFlags) -> Result<Vec<u64>, Problem> {
    // Tokens of another cluster mean nothing to this one.
    if std::env::var(HOLDING_AT).ok().is_none_or(|at| at != server.words()) {
        return Ok(Vec::new());
    }
    let text = std::env::var(HOLDING).unwrap_or_default();
    let tokens = text.split(',').filter(|token| !token.is_empty());
    tokens.map(|token| token.parse().ok()).collect::<Option<_>>().ok_or_else(|| {
        Problem::usage(format!("{HOLDING} is `{text}`, not tokens separated by commas"))
            .hint("the wrapper sets this variable: don't set it yourself")
    })
}

/// Variables to set, or to unset (`None`), because a wrapper around this one may have set them.
pub(super) type Variables = Vec<(&'static str, Option<OsString>)>;

/// The variables for a lock on Holdfast servers.
pub(super) fn native(
    names: &[OsString],
    guard: &Guard,
    outside: &[u64],
    server: &ServerFlags,
) -> Variables {
    let tokens = outside.iter().copied().chain([guard.token().get()]);
    let tokens: Vec<String> = tokens.map(|token| token.to_string()).collect();
    let secret: String = guard.secret().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut variables = vec![
        ("HOLDFAST_TOKEN", Some(guard.token().to_string().into())),
        ("HOLDFAST_SECRET", Some(secret.into())),
        ("HOLDFAST_LOCK", Some(names.join(OsStr::new("\n")))),
        (HOLDING, Some(tokens.join(",").into())),
        (HOLDING_AT, Some(server.words().into())),
        ("HOLDFAST_SERVER", Some(server.words().into())),
        (ON, None),
        (NEEDS_RECOVERY, Some(if guard.needs_recovery() { "1" } else { "" }.into())),
    ];
    if let Some(user) = server.user() {
        variables.push(("HOLDFAST_USER", Some(user.into())));
    }
    if let Some(file) = server.password_file() {
        variables.push(("HOLDFAST_PASSWORD_FILE", Some(file.into())));
    }
    variables.extend(server.tls_variables().map(|(name, value)| (name, Some(value))));
    let ending = guard.ending();
    variables.extend([
        (ENDED, Some(ending.map_or(String::new(), |ending| ending.how.to_string()).into())),
        (ENDED_TOKEN, Some(ending.map_or(String::new(), |e| e.token.to_string()).into())),
        (ENDED_LABEL, Some(text(ending.and_then(|ending| ending.label.as_deref())))),
        (ENDED_NOTE, Some(text(ending.and_then(|ending| ending.note.as_deref())))),
    ]);
    variables
}

/// The variables for a lock on another engine: the same, as far as the engine knows them.
pub(super) fn on_engine(guard: &EngineGuard, promises: &Promises, engine: &Engine) -> Variables {
    let ending = guard.ending();
    let known = |value: OsString| promises.reports_death.holds.then_some(value);
    let died = ending.is_some_and(|ending| ending.died);
    let ended = ending.map_or("", |ending| if ending.died { "died" } else { "released" });
    let ended_token = ending.and_then(|ending| ending.token);
    let label = ending.and_then(|ending| ending.label.as_deref());
    let note = ending.and_then(|ending| ending.note.as_deref());
    vec![
        ("HOLDFAST_TOKEN", guard.token().map(|token| token.to_string().into())),
        ("HOLDFAST_SECRET", None),
        ("HOLDFAST_LOCK", Some(guard.name().into())),
        (ON, Some(engine.url.clone().into())),
        (NEEDS_RECOVERY, known(if died { "1" } else { "" }.into())),
        (ENDED, known(ended.into())),
        (ENDED_TOKEN, known(ended_token.map_or(String::new(), |token| token.to_string()).into())),
        (ENDED_LABEL, known(text(label.map(str::as_bytes)))),
        (ENDED_NOTE, known(text(note.map(str::as_bytes)))),
    ]
}

fn text(bytes: Option<&[u8]>) -> OsString {
    // A variable can't hold a zero byte.
    let bytes: Vec<u8> = bytes.unwrap_or_default().iter().map(|b| (*b).max(1)).collect();
    OsStr::from_bytes(&bytes).to_owned()
}
