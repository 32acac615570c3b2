//! Decodes arbitrary bytes, at once and in pieces. Whatever is a valid request must survive a round
//! trip.

#![no_main]

use holdfast_zookeeper::codec::{Decoder, Reader, Request, RequestHeader};
use libfuzzer_sys::fuzz_target;

/// The first frame, the frames after it, and whether everything could be decoded.
fn decoded(bytes: &[u8], piece: usize) -> (Option<String>, Vec<Vec<u8>>, bool) {
    let (mut decoder, mut first, mut frames) = (Decoder::default(), None, Vec::new());
    for part in bytes.chunks(piece.max(1)) {
        decoder.push(part);
        loop {
            if first.is_none() {
                match decoder.first() {
                    Ok(Some(found)) => first = Some(format!("{found:?}")),
                    Ok(None) => break,
                    Err(_) => return (first, frames, false),
                }
                continue;
            }
            match decoder.frame() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(_) => return (first, frames, false),
            }
        }
    }
    (first, frames, true)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = decoded(bytes, bytes.len());
    assert_eq!(whole, decoded(bytes, 1));
    for frame in whole.1 {
        let mut reader = Reader::new(&frame);
        let Ok(header) = RequestHeader::decode(&mut reader) else { continue };
        let Ok(request) = Request::decode(header.op, &mut reader) else { continue };
        if request == Request::Unknown {
            continue;
        }
        let written = request.encode(header.xid);
        let mut reader = Reader::new(&written[4..]);
        let again = RequestHeader::decode(&mut reader).expect("a header");
        assert_eq!(Request::decode(again.op, &mut reader).as_ref(), Ok(&request));
    }
});
