//! Bytes to requests, replies to bytes, within bounds.
//!
//! [`Decoder`] cuts frames out of what a socket brought; [`Request::decode`] and [`Connect::decode`]
//! read them. [`Reply`], [`Connected`] and [`WatchEvent`] are written by their `encode`. The other
//! direction of each is here as well: clients of tests and of the simulator speak the same bytes.

mod frame;
mod jute;
mod records;
mod reply;
mod request;

pub use frame::{BadFrame, Decoder, FRAME_BYTES_MAX, First};
pub use jute::{Malformed, Reader, Writer};
pub use reply::{Connected, MultiResult, ReadResult, Reply, ReplyBody, WatchEvent, WatchEventType};
pub use request::{
    AddWatchMode, AuthPacket, Connect, ReadOp, Request, RequestHeader, SetWatches, WatcherType, op,
    xid,
};
