//! The cluster key: the cluster's id, and the secret that members prove to each other that they
//! know.
//!
//! It is one line of text in its own file, which the operator copies to every member. The secret is
//! never sent over a connection.

use crate::random;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The first word of the file, which identifies the format.
const WORD: &str = "holdfast-cluster-1";

/// A longer file is not a key.
const FILE_BYTES_MAX: u64 = 1_024;

/// A cluster's id and secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClusterKey {
    /// Drawn when the cluster is created; a restored cluster gets a new one.
    pub cluster: u128,
    pub(crate) secret: [u8; 32],
}

impl ClusterKey {
    /// Draws the key of a new cluster.
    pub fn draw() -> Self {
        Self { cluster: u128::from_le_bytes(random::bytes()), secret: random::bytes() }
    }

    /// Reads a key file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let unread = |error| {
            format!(
                "can't read the cluster key {shown}: {error}; copy it from another member, or make \
                 one for a new cluster with `holdfast new-key > FILE`, and use --cluster-key FILE"
            )
        };
        let size = fs::metadata(path).map_err(unread)?;
        if size.len() > FILE_BYTES_MAX {
            return Err(format!("{shown} is not a cluster key: it is too long"));
        }
        let text = fs::read_to_string(path).map_err(unread)?;
        Self::parse(&text).ok_or_else(|| {
            format!(
                "{shown} is not a cluster key: copy the file `cluster.key` of a running member, or \
                 make a new one with `holdfast new-key`"
            )
        })
    }

    /// Writes a new file that only its owner can read; fails if it exists.
    pub fn write_new(&self, path: &Path) -> Result<(), String> {
        let write = || {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(self.to_line().as_bytes())?;
            file.sync_all()
        };
        write().map_err(|error| format!("can't write the cluster key {}: {error}", path.display()))
    }

    /// The content of the key file.
    pub fn to_line(&self) -> String {
        let secret: String = self.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{WORD} {:032x} {secret}\n", self.cluster)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (word, cluster, secret) = (words.next()?, words.next()?, words.next()?);
        if word != WORD || words.next().is_some() || cluster.len() != 32 || secret.len() != 64 {
            return None;
        }
        let mut key = Self { cluster: u128::from_str_radix(cluster, 16).ok()?, secret: [0; 32] };
        for (byte, at) in key.secret.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(secret.get(at..at + 2)?, 16).ok()?;
        }
        Some(key)
    }
}

/// Shows the cluster, never the secret.
impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKey({:032x})", self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read_back() {
        let key = ClusterKey::draw();
        assert_eq!(ClusterKey::parse(&key.to_line()), Some(key));
    }

    #[test]
    fn invalid_keys_are_refused() {
        let line = ClusterKey::draw().to_line();
        let cut = line.trim_end().get(..line.len() - 3).unwrap_or_default();
        for text in ["", "hello", cut, &line.replace(WORD, "holdfast-cluster-2"), &line.repeat(2)] {
            assert_eq!(ClusterKey::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn secret_is_not_shown() {
        let key = ClusterKey::draw();
        let line = key.to_line();
        let secret = line.split_whitespace().last().unwrap_or_default();
        assert!(!format!("{key:?}").contains(secret));
    }
}
