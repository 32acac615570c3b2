//! The scripts that this node has seen, by their SHA-1.

use super::known_scripts::{self, KnownScript};
use crate::error::Error;
use bytes::Bytes;
use sha1::{Digest, Sha1};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Scripts that are kept. Clients have a handful each; if one was evicted, its client gets an error
/// and sends it again.
const SCRIPTS_MAX: usize = 1_024;

/// Bytes of all scripts that are kept.
const SCRIPTS_BYTES_MAX: usize = 8 << 20;

/// One script.
#[derive(Debug)]
pub struct Script {
    /// Its SHA-1, as 40 hexadecimal digits.
    pub sha: String,
    /// Its source.
    pub text: Bytes,
    /// Set if it is one that every lock client has.
    pub known: Option<KnownScript>,
    /// Whether its shebang line says that it does not write.
    pub(crate) read_only: bool,
}

impl Script {
    /// Parses the shebang line; does not compile the script.
    pub(crate) fn parse(text: &Bytes, sha: String) -> Result<Self, Error> {
        let text = Bytes::copy_from_slice(text);
        let read_only = shebang(&text)?;
        let known = if text.starts_with(b"#!") { None } else { known_scripts::recognise(&text) };
        Ok(Self { sha, known, read_only, text })
    }

    /// The source for Lua: a shebang line is blanked.
    pub(crate) fn lua(&self) -> &[u8] {
        if !self.text.starts_with(b"#!") {
            return &self.text;
        }
        let end = self.text.iter().position(|byte| *byte == b'\n').unwrap_or(self.text.len());
        self.text.get(end..).unwrap_or_default()
    }
}

/// Parses `#!lua flags=no-writes`; returns whether the script only reads.
fn shebang(text: &[u8]) -> Result<bool, Error> {
    if !text.starts_with(b"#!") {
        return Ok(false);
    }
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(Error::err(format_args!("Unexpected engine in script shebang: {engine}")));
    }
    let mut read_only = false;
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(Error::err(format_args!("Unknown lua shebang option: {word}")));
        };
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => read_only = true,
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                other => {
                    return Err(Error::err(format_args!(
                        "Unexpected flag in script shebang: {other}"
                    )));
                }
            }
        }
    }
    Ok(read_only)
}

/// The SHA-1 as 40 hexadecimal digits.
pub(crate) fn sha1_hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(40);
    for byte in Sha1::digest(bytes) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The scripts that were loaded or sent. The least recently used are evicted first.
#[derive(Debug, Default)]
pub struct Scripts(Mutex<ScriptCache>);

#[derive(Debug, Default)]
struct ScriptCache {
    by_sha: HashMap<String, (Arc<Script>, u64)>,
    bytes: usize,
    uses: u64,
}

impl Scripts {
    /// Looks up a script by its SHA-1, in lower case.
    pub fn get(&self, sha: &[u8]) -> Option<Arc<Script>> {
        let sha = std::str::from_utf8(sha).ok()?;
        let mut kept = self.kept();
        kept.uses = kept.uses.saturating_add(1);
        let now = kept.uses;
        let (script, used) = kept.by_sha.get_mut(sha)?;
        *used = now;
        Some(script.clone())
    }

    /// Keeps a script that has been compiled successfully.
    pub(crate) fn keep(&self, script: Arc<Script>) {
        let mut kept = self.kept();
        kept.uses = kept.uses.saturating_add(1);
        let (now, bytes) = (kept.uses, script.text.len());
        if kept.by_sha.insert(script.sha.clone(), (script, now)).is_none() {
            kept.bytes = kept.bytes.saturating_add(bytes);
        }
        while kept.by_sha.len() > SCRIPTS_MAX || kept.bytes > SCRIPTS_BYTES_MAX {
            let oldest = kept.by_sha.iter().min_by_key(|(_, (_, used))| *used);
            let Some(sha) = oldest.map(|(sha, _)| sha.clone()) else { break };
            if let Some((script, _)) = kept.by_sha.remove(&sha) {
                kept.bytes = kept.bytes.saturating_sub(script.text.len());
            }
        }
    }

    /// Forgets all scripts.
    pub(crate) fn clear(&self) {
        let mut kept = self.kept();
        kept.by_sha.clear();
        kept.bytes = 0;
    }

    /// The content is consistent even if a thread panicked while holding the lock.
    fn kept(&self) -> MutexGuard<'_, ScriptCache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Script, Error> {
        Script::parse(&Bytes::copy_from_slice(text.as_bytes()), sha1_hex(text.as_bytes()))
    }

    #[test]
    fn least_recently_used_script_is_evicted() {
        let scripts = Scripts::default();
        let script = |number: usize| Arc::new(parsed(&format!("return {number}")).unwrap());
        for number in 0..SCRIPTS_MAX {
            scripts.keep(script(number));
        }
        assert!(scripts.get(script(0).sha.as_bytes()).is_some());
        scripts.keep(script(SCRIPTS_MAX));
        assert!(scripts.get(script(0).sha.as_bytes()).is_some());
        assert!(scripts.get(script(1).sha.as_bytes()).is_none());
        scripts.clear();
        assert!(scripts.get(script(0).sha.as_bytes()).is_none());
    }

    #[test]
    fn shebangs_are_parsed() {
        let error = |text: &str| parsed(text).unwrap_err().to_string();
        assert_eq!(error("#!foo\nreturn 1"), "ERR Unexpected engine in script shebang: #!foo");
        assert_eq!(error("#!lua nam=x\nreturn 1"), "ERR Unknown lua shebang option: nam=x");
        assert_eq!(error("#!lua flags=foo\n"), "ERR Unexpected flag in script shebang: foo");
        let script = parsed("#!lua flags=no-writes\nreturn 1").unwrap();
        assert!(script.read_only);
        assert_eq!(script.lua(), b"\nreturn 1");
    }
}
