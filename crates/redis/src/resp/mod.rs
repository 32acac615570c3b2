//! RESP: decodes requests, encodes replies. No I/O.

mod decode;
mod encode;
mod reply;

pub use decode::{Bounds, Decoder, ProtocolError, Request};
pub use encode::encode;
pub use reply::{Protocol, Reply};
