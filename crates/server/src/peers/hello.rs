//! How two nodes get to know each other: what is said, and how each proves that it knows the
//! cluster's secret without sending it.
//!
//! 1. The dialer says who it is, whom it wants, and a random number.
//! 2. The other answers with a random number of its own and a proof over both.
//! 3. The dialer checks that proof and sends its own.
//! 4. The other checks it, and says welcome, or why not.
//!
//! Each message is a frame: its length in four bytes, then that many bytes. The first begins with
//! eight fixed bytes and a version, so that a stranger is told at once what is wrong.

use crate::key::ClusterKey;
use hmac::{Hmac, Mac};
use holdfast_node::NodeId;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::collections::BTreeSet;

/// The first bytes of every connection.
const MAGIC: [u8; 8] = *b"HOLDFPEE";

/// The version of everything that nodes say to each other.
const VERSION: u16 = 1;

/// The longest frame before the other side has proved itself.
pub(crate) const HELLO_BYTES_MAX: usize = 2_048;

/// What the connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// Messages of the loop, one way.
    Messages,
    /// One snapshot.
    Snapshot,
    /// A question to the leader about the members, and its answer.
    Members,
}

/// Who dials, and whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) purpose: Purpose,
    pub(crate) cluster: u128,
    /// None for one that is to become a member.
    pub(crate) from: Option<Me>,
    /// None for whoever is there.
    pub(crate) to: Option<NodeId>,
    pub(crate) nonce: [u8; 32],
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Me {
    pub(crate) node: NodeId,
    /// What tells its folder from any other.
    pub(crate) birth: u64,
    pub(crate) contact: Contact,
    /// Sent behind everything else, where older programs don't look; none if such a one speaks.
    #[serde(skip)]
    pub(crate) run: Option<Run>,
    /// With which first members it is about to begin a cluster; none if its cluster has begun. Sent
    /// behind `run`.
    #[serde(skip)]
    pub(crate) founding: Option<BTreeSet<NodeId>>,
}

/// One start of a node: two processes under one id never have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// How many starts its folder has seen. A copy of the folder, or an old one, is behind or has
    /// another `nonce`.
    pub(crate) number: u64,
    pub(crate) nonce: u64,
}

/// Where a node can be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// By its peers.
    pub peer: String,
    /// By clients over HTTP and gRPC.
    pub http: String,
}

/// The answer to a hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Challenge {
    Prove { nonce: [u8; 32], proof: [u8; 32] },
    Refused(String),
}

/// The last word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    Welcome(Me),
    /// The dialer was a member, and is none any more.
    Removed,
    /// The dialer's id belongs to a node with another folder.
    Reborn,
    Refused(String),
    /// Another process runs under the dialer's id, and answers there.
    AlreadyRuns(String),
    /// A later start of the dialer's id has been seen: its folder is a copy or an old one.
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

/// The run that stands behind everything else.
fn run_in(rest: &[u8]) -> Option<Run> {
    postcard::from_bytes(rest).ok()
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let run = self.from.as_ref().and_then(|from| from.run);
        // Writing to a growing buffer fails only for types that postcard can't write at all.
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

/// Which side proves itself: a proof can't be sent back as one's own.
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

/// Proves that this side knows the secret. It covers the whole hello, both random numbers
/// included: it is good for this connection only.
pub(crate) fn prove(key: &ClusterKey, side: Side, hello: &[u8], nonce: &[u8; 32]) -> [u8; 32] {
    mac(key, side, hello, nonce).map_or([0; 32], |mac| mac.finalize().into_bytes().into())
}

/// Whether the other side knows the secret; in constant time.
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
            from: Some(Me {
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
    fn what_is_said_is_understood() {
        assert_eq!(Hello::decode(&hello().encode()), Ok(hello()));
        let mut founding = hello();
        if let Some(from) = &mut founding.from {
            from.founding = Some([NodeId(1), NodeId(2)].into());
        }
        assert_eq!(Hello::decode(&founding.encode()), Ok(founding.clone()));
        assert!(founding.encode().starts_with(&hello().encode()), "what is new comes last");
    }

    /// Nodes are upgraded one by one: an older program reads what a newer one says, and the other way.
    #[test]
    fn an_older_program_is_understood_and_understands() {
        let without = |mut hello: Hello| {
            hello.from = hello.from.map(|from| Me { run: None, ..from });
            hello
        };
        let old = without(hello()).encode();
        assert_eq!(Hello::decode(&old), Ok(without(hello())));
        assert!(hello().encode().starts_with(&old), "what is new comes last");
        let me = hello().from.expect("it says who it is");
        let (new, me) = (Verdict::Welcome(me.clone()), Me { run: None, ..me });
        let encoded = new.encode().expect("it can be encoded");
        assert_eq!(Verdict::decode(&encoded), Ok(new));
        assert_eq!(postcard::from_bytes(&encoded), Ok(Verdict::Welcome(me)));
    }

    #[test]
    fn a_stranger_is_told_what_is_wrong() {
        let told = |bytes: &[u8]| Hello::decode(bytes).err().unwrap_or_default();
        assert!(told(b"GET / HTTP/1.1").contains("the port for a Holdfast node's peers"));
        let mut later = hello().encode();
        later[8] = 9;
        assert!(told(&later).contains("version 1, not 9"));
        assert!(told(&hello().encode()[..20]).contains("can't be read"));
    }

    #[test]
    fn a_proof_is_good_for_its_side_its_hello_and_its_secret_only() {
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
