//! The handshake between two nodes: its messages, and how each side proves that it knows the
//! cluster's secret without sending it.
//!
//! 1. The dialer sends who it is, whom it wants to reach, and a nonce.
//! 2. The acceptor replies with its own nonce and a proof over both.
//! 3. The dialer checks that proof and sends its own.
//! 4. The acceptor checks it and replies with a welcome, or the reason for refusing.
//!
//! Each message is a frame: its length in four bytes, then that many bytes. The first message
//! starts with eight magic bytes and a version, so that a stranger gets a clear error immediately.

use crate::key::ClusterKey;
use hmac::{Hmac, Mac};
use holdfast_node::NodeId;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::collections::BTreeSet;

/// The first bytes of every connection.
const MAGIC: [u8; 8] = *b"HOLDFPEE";

/// The version of the whole protocol between nodes.
const VERSION: u16 = 1;

/// The longest frame accepted before the other side has proved itself.
pub(crate) const HELLO_BYTES_MAX: usize = 2_048;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// The loop's messages, in one direction.
    Messages,
    /// One snapshot.
    Snapshot,
    /// A membership question to the leader, and its reply.
    Members,
}

/// The dialer's first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) purpose: Purpose,
    pub(crate) cluster: u128,
    /// `None` if the dialer is not a member yet.
    pub(crate) from: Option<Introduction>,
    /// The node to reach; `None` for any.
    pub(crate) to: Option<NodeId>,
    pub(crate) nonce: [u8; 32],
}

/// How a node introduces itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) node: NodeId,
    /// Identifies its data folder.
    pub(crate) birth: u64,
    pub(crate) contact: Contact,
    /// Appended after everything else, where older versions don't look; `None` if the sender is an
    /// older version.
    #[serde(skip)]
    pub(crate) run: Option<Run>,
    /// The first members with which it is about to start a cluster; `None` if its cluster has
    /// started. Appended after `run`.
    #[serde(skip)]
    pub(crate) founding: Option<BTreeSet<NodeId>>,
}

/// One start of a node; no two processes under one id have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// How many starts its folder has seen. A copy of the folder, or an old version of it, has a
    /// lower number or another `nonce`.
    pub(crate) number: u64,
    pub(crate) nonce: u64,
}

/// The addresses at which a node can be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// For its peers.
    pub peer: String,
    /// For clients, over HTTP and gRPC.
    pub http: String,
}

/// The answer to a hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Challenge {
    Prove { nonce: [u8; 32], proof: [u8; 32] },
    Refused(String),
}

/// The reply that ends the handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    Welcome(Introduction),
    /// The dialer used to be a member, and no longer is.
    Removed,
    /// The dialer's id belongs to a node with another data folder.
    Reborn,
    Refused(String),
    /// Another process runs under the dialer's id, at this address.
    AlreadyRuns(String),
    /// A later start under the dialer's id has been seen: its folder is a copy or an old version.
    Superseded,
}

impl Verdict {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let run = match self {
            Self::Welcome(me) => me.run,
            _ => None,
        };
        with_run(postcard::to_allocvec(self).map_err(|error| error.to_string())?, run)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let decoded = postcard::take_from_bytes(bytes);
        let (mut verdict, rest) = decoded.map_err(|_| "its verdict can't be read".to_owned())?;
        if let Self::Welcome(me) = &mut verdict {
            me.run = run_in(rest);
        }
        Ok(verdict)
    }
}

/// Appends a run, if there is one.
fn with_run(bytes: Vec<u8>, run: Option<Run>) -> Result<Vec<u8>, String> {
    match run {
        Some(run) => postcard::to_extend(&run, bytes).map_err(|error| error.to_string()),
        None => Ok(bytes),
    }
}

/// Decodes the run appended after everything else.
fn run_in(rest: &[u8]) -> Option<Run> {
    postcard::from_bytes(rest).ok()
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let run = self.from.as_ref().and_then(|from| from.run);
        // Never fails: it is an in-memory buffer, and these types can always be encoded.
        let encoded = postcard::to_extend(self, bytes).unwrap_or_default();
        let encoded = with_run(encoded, run).unwrap_or_default();
        match self.from.as_ref().and_then(|from| from.founding.as_ref()) {
            Some(founding) => postcard::to_extend(founding, encoded).unwrap_or_default(),
            None => encoded,
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (magic, rest) = bytes.split_at_checked(MAGIC.len()).unwrap_or_default();
        let (version, rest) = rest.split_at_checked(2).unwrap_or_default();
        if magic != MAGIC {
            return Err("this is the port for a Holdfast node's peers".to_owned());
        }
        match <[u8; 2]>::try_from(version).map(u16::from_le_bytes) {
            Ok(VERSION) => {
                let decoded = postcard::take_from_bytes::<Self>(rest);
                let (mut hello, rest) = decoded.map_err(|_| "the hello can't be read")?;
                if let Some(from) = &mut hello.from
                    && let Ok((run, rest)) = postcard::take_from_bytes(rest)
                {
                    from.run = Some(run);
                    from.founding = postcard::from_bytes(rest).ok();
                }
                Ok(hello)
            }
            Ok(other) => Err(format!("peers here speak version {VERSION}, not {other}")),
            Err(_) => Err("the hello is cut off".to_owned()),
        }
    }
}

/// Which side is proving itself, so that a proof can't be reflected to its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Dialer,
    Acceptor,
}

fn mac(key: &ClusterKey, side: Side, hello: &[u8], nonce: &[u8; 32]) -> Option<Hmac<Sha256>> {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&key.secret).ok()?;
    mac.update(match side {
        Side::Dialer => b"holdfast dialer  ",
        Side::Acceptor => b"holdfast acceptor",
    });
    mac.update(&(hello.len() as u64).to_le_bytes());
    mac.update(hello);
    mac.update(nonce);
    Some(mac)
}

/// Proves that this side knows the secret. The proof covers the whole hello and both nonces, so it
/// is valid for this connection only.
pub(crate) fn prove(key: &ClusterKey, side: Side, hello: &[u8], nonce: &[u8; 32]) -> [u8; 32] {
    mac(key, side, hello, nonce).map_or([0; 32], |mac| mac.finalize().into_bytes().into())
}

/// Whether the other side knows the secret. Compares in constant time.
pub(crate) fn proves(
    key: &ClusterKey,
    side: Side,
    hello: &[u8],
    nonce: &[u8; 32],
    proof: &[u8; 32],
) -> bool {
    mac(key, side, hello, nonce).is_some_and(|mac| mac.verify_slice(proof).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            purpose: Purpose::Messages,
            cluster: 7,
            from: Some(Introduction {
                node: NodeId(1),
                birth: 9,
                contact: Contact { peer: "127.0.0.1:7410".into(), http: "127.0.0.1:7400".into() },
                run: Some(Run { number: 3, nonce: 1 << 60 }),
                founding: None,
            }),
            to: Some(NodeId(2)),
            nonce: [3; 32],
        }
    }

    #[test]
    fn messages_are_decoded() {
        assert_eq!(Hello::decode(&hello().encode()), Ok(hello()));
        let mut founding = hello();
        if let Some(from) = &mut founding.from {
            from.founding = Some([NodeId(1), NodeId(2)].into());
        }
        assert_eq!(Hello::decode(&founding.encode()), Ok(founding.clone()));
        assert!(founding.encode().starts_with(&hello().encode()), "what is new comes last");
    }

    /// Nodes are upgraded one by one: older and newer versions must be able to read each other's
    /// messages.
    #[test]
    fn handshake_is_compatible_with_older_versions() {
        let without = |mut hello: Hello| {
            hello.from = hello.from.map(|from| Introduction { run: None, ..from });
            hello
        };
        let old = without(hello()).encode();
        assert_eq!(Hello::decode(&old), Ok(without(hello())));
        assert!(hello().encode().starts_with(&old), "what is new comes last");
        let me = hello().from.expect("it says who it is");
        let (new, me) = (Verdict::Welcome(me.clone()), Introduction { run: None, ..me });
        let encoded = new.encode().expect("it can be encoded");
        assert_eq!(Verdict::decode(&encoded), Ok(new));
        assert_eq!(postcard::from_bytes(&encoded), Ok(Verdict::Welcome(me)));
    }

    #[test]
    fn unknown_peers_get_an_error() {
        let refusal = |bytes: &[u8]| Hello::decode(bytes).err().unwrap_or_default();
        assert!(refusal(b"GET / HTTP/1.1").contains("the port for a Holdfast node's peers"));
        let mut later = hello().encode();
        later[8] = 9;
        assert!(refusal(&later).contains("version 1, not 9"));
        assert!(refusal(&hello().encode()[..20]).contains("can't be read"));
    }

    #[test]
    fn proof_is_bound_to_side_hello_and_secret() {
        let (key, other) = (ClusterKey::draw(), ClusterKey::draw());
        let (hello, nonce) = (hello().encode(), [5; 32]);
        let proof = prove(&key, Side::Dialer, &hello, &nonce);
        assert!(proves(&key, Side::Dialer, &hello, &nonce, &proof));
        assert!(!proves(&key, Side::Acceptor, &hello, &nonce, &proof));
        assert!(!proves(&other, Side::Dialer, &hello, &nonce, &proof));
        assert!(!proves(&key, Side::Dialer, &hello[1..], &nonce, &proof));
        assert!(!proves(&key, Side::Dialer, &hello, &[6; 32], &proof));
    }
}
