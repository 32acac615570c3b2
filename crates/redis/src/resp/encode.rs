//! Encodes replies.

use super::reply::{Protocol, Reply};
use crate::number::general;

/// Appends an encoded reply to `out`.
pub fn encode(reply: &Reply, protocol: Protocol, out: &mut Vec<u8>) {
    let new = protocol == Protocol::Resp3;
    match reply {
        Reply::Status(text) => line(b'+', text, out),
        Reply::Error(error) => line(b'-', error.as_bytes(), out),
        Reply::Integer(number) => head(b':', number, out),
        Reply::Bulk(bytes) => bulk(b'$', &[bytes], out),
        Reply::Null | Reply::NullArray if new => out.extend_from_slice(b"_\r\n"),
        Reply::Null => out.extend_from_slice(b"$-1\r\n"),
        Reply::NullArray => out.extend_from_slice(b"*-1\r\n"),
        Reply::Array(items) => list(b'*', items, protocol, out),
        Reply::Set(items) => list(if new { b'~' } else { b'*' }, items, protocol, out),
        Reply::Push(items) => list(if new { b'>' } else { b'*' }, items, protocol, out),
        Reply::Map(pairs) => {
            let len = if new { pairs.len() } else { pairs.len().saturating_mul(2) };
            head(if new { b'%' } else { b'*' }, &len, out);
            for (key, value) in pairs {
                encode(key, protocol, out);
                encode(value, protocol, out);
            }
        }
        Reply::Boolean(yes) if new => {
            out.extend_from_slice(if *yes { b"#t\r\n" } else { b"#f\r\n" })
        }
        Reply::Boolean(yes) => head(b':', &u8::from(*yes), out),
        Reply::Double(number) if new => line(b',', general(*number, 17).as_bytes(), out),
        Reply::Double(number) => bulk(b'$', &[general(*number, 17).as_bytes()], out),
        Reply::BigNumber(digits) if new => line(b'(', digits, out),
        Reply::BigNumber(digits) => bulk(b'$', &[digits], out),
        Reply::Verbatim(kind, text) if new => bulk(b'=', &[kind, b":", text], out),
        Reply::Verbatim(_, text) => bulk(b'$', &[text], out),
    }
}

fn head(kind: u8, number: &impl ToString, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(number.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A single line: a line break within it would be taken for the end of the reply.
fn line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

fn bulk(kind: u8, parts: &[&[u8]], out: &mut Vec<u8>) {
    head(kind, &parts.iter().map(|part| part.len()).sum::<usize>(), out);
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}

fn list(kind: u8, items: &[Reply], protocol: Protocol, out: &mut Vec<u8>) {
    head(kind, &items.len(), out);
    for item in items {
        encode(item, protocol, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn written(reply: &Reply, protocol: Protocol) -> String {
        let mut out = Vec::new();
        encode(reply, protocol, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn replies_are_encoded_in_resp2_and_resp3() {
        let one = || Reply::Integer(1);
        let a = || Reply::bulk("a");
        let cases = [
            (Reply::OK, "+OK\r\n", "+OK\r\n"),
            (Reply::status("a\r\nb"), "+a  b\r\n", "+a  b\r\n"),
            (Reply::Null, "$-1\r\n", "_\r\n"),
            (Reply::NullArray, "*-1\r\n", "_\r\n"),
            (Reply::Array(vec![one(), a()]), "*2\r\n:1\r\n$1\r\na\r\n", "*2\r\n:1\r\n$1\r\na\r\n"),
            (Reply::Map(vec![(a(), one())]), "*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n$1\r\na\r\n:1\r\n"),
            (Reply::Set(vec![one()]), "*1\r\n:1\r\n", "~1\r\n:1\r\n"),
            (Reply::Push(vec![one()]), "*1\r\n:1\r\n", ">1\r\n:1\r\n"),
            (Reply::Boolean(true), ":1\r\n", "#t\r\n"),
            (Reply::Double(3.5), "$3\r\n3.5\r\n", ",3.5\r\n"),
            (Reply::BigNumber(Bytes::from("12")), "$2\r\n12\r\n", "(12\r\n"),
            (Reply::Verbatim(*b"txt", Bytes::from("x")), "$1\r\nx\r\n", "=5\r\ntxt:x\r\n"),
        ];
        for (reply, old, new) in cases {
            assert_eq!(written(&reply, Protocol::Resp2), old);
            assert_eq!(written(&reply, Protocol::Resp3), new);
        }
    }
}
