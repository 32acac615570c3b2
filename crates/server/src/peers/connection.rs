//! One connection between two nodes: its frames, and the handshake at its start.

use super::handshake::{
    Challenge, HELLO_BYTES_MAX, Hello, Introduction, Purpose, Side, Verdict, prove, proves,
};
use crate::key::ClusterKey;
use crate::random;
use crate::sockets;
use crate::stream::Stream;
use crate::tls::Tls;
use holdfast_node::NodeId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The handshake takes a few round trips; a node that needs longer counts as down.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A reachable machine accepts a connection immediately. When packets are lost, the kernel retries
/// less and less often, so each attempt of ours is short.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A running node answers a hello immediately.
const CHALLENGE_TIMEOUT: Duration = Duration::from_secs(3);

/// How a node proves that it belongs to the cluster.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) key: ClusterKey,
    /// `None` means that connections between nodes are not encrypted.
    pub(crate) tls: Option<Tls>,
}

/// Why a connection could not be made.
#[derive(Debug)]
pub(crate) enum NoConnection {
    /// This node was removed from the cluster.
    Removed,
    /// This node's id belongs to a node with another data folder.
    Reborn,
    /// Another process runs under this node's id, at this address.
    AlreadyRuns(String),
    /// A later start under this node's id has been seen.
    Superseded,
    /// Any other reason, as text.
    Because(String),
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed => f.write_str("this node was removed from the cluster"),
            Self::Reborn => f.write_str(
                "another folder than this one was this node's: it has forgotten what it voted for, \
                 and must not come back under its old id. Start it in an empty folder with --join, \
                 then remove the old id",
            ),
            Self::AlreadyRuns(address) => write!(
                f,
                "another node runs under this node's id, at {address}: this folder is a copy of that \
                 one's. Leave that one alone, and start a new node in an empty folder with --join",
            ),
            Self::Superseded => f.write_str(
                "a later start under this node's id has been seen: this folder is a copy, or an old \
                 one, and does not know what was promised since. Start a new node in an empty folder \
                 with --join; if no other node has this id any more, remove the id",
            ),
            Self::Because(why) => f.write_str(why),
        }
    }
}

impl From<String> for NoConnection {
    fn from(why: String) -> Self {
        Self::Because(why)
    }
}

/// Reads one frame of at most `bytes_max` bytes.
pub(crate) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> Result<Vec<u8>, String> {
    let mut frame = Vec::new();
    read_frame_into(stream, bytes_max, &mut frame).await.map(|()| frame)
}

/// Like [`read_frame`], into a buffer that is reused.
pub(crate) async fn read_frame_into(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
    frame: &mut Vec<u8>,
) -> Result<(), String> {
    let length = stream.read_u32_le().await.map_err(|error| error.to_string())? as usize;
    if length > bytes_max {
        return Err(format!("a frame of {length} bytes, and at most {bytes_max} are taken"));
    }
    frame.resize(length, 0);
    stream.read_exact(frame).await.map_err(|error| error.to_string())?;
    Ok(())
}

pub(crate) async fn write_frame(
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> Result<(), String> {
    let length = u32::try_from(bytes.len()).map_err(|_| "a frame is too long".to_owned())?;
    let mut frame = Vec::with_capacity(bytes.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(bytes);
    stream.write_all(&frame).await.map_err(|error| error.to_string())
}

/// Reads one frame and decodes it.
pub(crate) async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<T, String> {
    let frame = read_frame(stream, HELLO_BYTES_MAX).await?;
    postcard::from_bytes(&frame).map_err(|_| "the other node's message can't be decoded".to_owned())
}

pub(crate) async fn write<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    what: &T,
) -> Result<(), String> {
    let bytes = postcard::to_allocvec(what).map_err(|error| error.to_string())?;
    write_frame(stream, &bytes).await
}

/// Dials another node. Both sides prove to each other that they belong to the cluster.
pub(crate) async fn dial(
    address: &str,
    credentials: &Credentials,
    me: Option<&Introduction>,
    to: Option<NodeId>,
    purpose: Purpose,
) -> Result<(Stream, Introduction), NoConnection> {
    let Credentials { key, tls } = credentials;
    let nonce = random::bytes();
    let hello = Hello { purpose, cluster: key.cluster, from: me.cloned(), to, nonce };
    let dialed = timeout(HANDSHAKE_TIMEOUT, async {
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let tcp = connected
            .map_err(|_| format!("no reply from {address}"))?
            .map_err(|error| format!("no reply from {address}: {error}"))?;
        sockets::prepare_for_peer(&tcp);
        let mut stream = match tls {
            None => tcp.into(),
            Some(tls) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                tls.dial(tcp, host).map_err(|why| format!("{address}: {why}"))?
            }
        };
        let there = introduce(&mut stream, key, &hello).await.map_err(|error| match error {
            NoConnection::Because(why) => NoConnection::Because(format!("{address}: {why}")),
            refused => refused,
        })?;
        Ok((stream, there))
    });
    dialed.await.unwrap_or_else(|_| Err(format!("{address} does not answer").into()))
}

async fn introduce(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    key: &ClusterKey,
    hello: &Hello,
) -> Result<Introduction, NoConnection> {
    let hello_bytes = hello.encode();
    write_frame(stream, &hello_bytes).await?;
    let challenge = timeout(CHALLENGE_TIMEOUT, read(stream)).await;
    let (nonce, proof) = match challenge.map_err(|_| "it does not answer".to_owned())?? {
        Challenge::Prove { nonce, proof } => (nonce, proof),
        Challenge::Refused(why) => return Err(why.into()),
    };
    if !proves(key, Side::Acceptor, &hello_bytes, &nonce, &proof) {
        return Err("it has another cluster secret: is it a node of this cluster, and is the key \
                    file the same?"
            .to_owned()
            .into());
    }
    write(stream, &prove(key, Side::Dialer, &hello_bytes, &nonce)).await?;
    match Verdict::decode(&read_frame(stream, HELLO_BYTES_MAX).await?)? {
        Verdict::Welcome(there) => Ok(there),
        Verdict::Removed => Err(NoConnection::Removed),
        Verdict::Reborn => Err(NoConnection::Reborn),
        Verdict::AlreadyRuns(address) => Err(NoConnection::AlreadyRuns(address)),
        Verdict::Superseded => Err(NoConnection::Superseded),
        Verdict::Refused(why) => Err(why.into()),
    }
}

/// Accepts a connection from a node that can prove it belongs to the cluster, and returns its
/// hello. Whether to let it in is up to the caller, who must [`answer`].
pub(crate) async fn accept(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    key: &ClusterKey,
) -> Result<Hello, String> {
    let taken = timeout(HANDSHAKE_TIMEOUT, async {
        let hello_bytes = read_frame(stream, HELLO_BYTES_MAX).await;
        let hello_bytes = hello_bytes
            .map_err(|why| format!("the first message is not a Holdfast node's hello: {why}"))?;
        let hello = match Hello::decode(&hello_bytes) {
            Ok(hello) => hello,
            Err(why) => {
                write(stream, &Challenge::Refused(why.clone())).await?;
                return Err(why);
            }
        };
        let nonce = random::bytes();
        let proof = prove(key, Side::Acceptor, &hello_bytes, &nonce);
        write(stream, &Challenge::Prove { nonce, proof }).await?;
        let proof: [u8; 32] = read(stream).await?;
        let wrong = if !proves(key, Side::Dialer, &hello_bytes, &nonce, &proof) {
            "wrong cluster secret"
        } else if hello.cluster != key.cluster {
            "this is a node of another cluster"
        } else {
            return Ok(hello);
        };
        answer(stream, &Verdict::Refused(wrong.to_owned())).await?;
        Err(wrong.to_owned())
    });
    taken.await.unwrap_or_else(|_| Err("it did not identify itself".to_owned()))
}

/// Sends the verdict that ends the handshake; returns the reason if it is not a welcome.
pub(crate) async fn answer(
    stream: &mut (impl AsyncWrite + Unpin),
    verdict: &Verdict,
) -> Result<(), String> {
    let written = timeout(HANDSHAKE_TIMEOUT, write_frame(stream, &verdict.encode()?)).await;
    written.unwrap_or_else(|_| Err("it does not read".to_owned()))?;
    Err(match verdict {
        Verdict::Welcome(_) => return Ok(()),
        Verdict::Removed => "it was removed from the cluster".to_owned(),
        Verdict::Reborn => "it has lost its folder and came back under its id".to_owned(),
        Verdict::AlreadyRuns(address) => {
            format!("another node runs under its id, at {address}: its folder is a copy")
        }
        Verdict::Superseded => {
            "a later start under its id was seen: its folder is a copy, or an old one".to_owned()
        }
        Verdict::Refused(why) => why.clone(),
    })
}
