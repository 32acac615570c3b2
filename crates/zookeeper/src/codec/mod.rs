//! Decodes requests and encodes replies, with limits on everything.
//!
//! [`Decoder`] splits received bytes into frames; [`Request::decode`] and [`Connect::decode`] parse
//! them. [`Reply`], [`Connected`] and [`WatchEvent`] have an `encode`. The opposite direction of
//! each is here too, for the clients of the tests and the simulator.

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
