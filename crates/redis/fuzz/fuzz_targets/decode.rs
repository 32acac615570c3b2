//! Any bytes, whole and byte by byte, through the decoder, the parser and the encoder.

#![no_main]

use bytes::BytesMut;
use holdfast_redis::command;
use holdfast_redis::resp::{Bounds, Decoder, Protocol, Reply, encode};
use libfuzzer_sys::fuzz_target;

fn decoded(bytes: &[u8], piece: usize) -> (Vec<Vec<bytes::Bytes>>, bool) {
    let (mut decoder, mut buffer, mut requests) = (Decoder::default(), BytesMut::new(), Vec::new());
    for part in bytes.chunks(piece.max(1)) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&mut buffer, &Bounds::DEFAULT) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(_) => return (requests, false),
            }
        }
    }
    (requests, true)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = decoded(bytes, bytes.len());
    assert_eq!(whole, decoded(bytes, 1));
    for request in whole.0 {
        let reply = match command::parse(&request) {
            Ok(_) => Reply::OK,
            Err(error) => Reply::Error(error),
        };
        let mut out = Vec::new();
        encode(&reply, Protocol::Resp3, &mut out);
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
});
