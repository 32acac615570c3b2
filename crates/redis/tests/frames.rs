//! Decoding requests: whole, in pieces, malformed, and from arbitrary bytes.

use bytes::{Bytes, BytesMut};
use holdfast_redis::resp::{Bounds, Decoder, Request};
use proptest::prelude::*;
use std::path::Path;

/// All requests in some bytes, and the error in what follows them.
fn decoded(bytes: &[u8], piece: usize, bounds: &Bounds) -> (Vec<Request>, Option<String>) {
    let (mut decoder, mut buffer, mut requests) = (Decoder::default(), BytesMut::new(), Vec::new());
    for part in bytes.chunks(piece.max(1)) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&mut buffer, bounds) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Some(error.to_string())),
            }
        }
    }
    (requests, None)
}

fn whole(bytes: &[u8]) -> (Vec<Request>, Option<String>) {
    decoded(bytes, bytes.len(), &Bounds::DEFAULT)
}

fn request(words: &[&str]) -> Request {
    words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

fn encoded(request: &Request) -> Vec<u8> {
    let mut out = format!("*{}\r\n", request.len()).into_bytes();
    for word in request {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

#[test]
fn inline_commands_are_parsed() {
    let cases: [(&[u8], &[&str]); 7] = [
        (b"PING\r\n", &["PING"]),
        (b"\r\n \r\nPING\n", &["PING"]),
        (b"set a  \"b c\"\r\n", &["set", "a", "b c"]),
        (b"set a \"\\x41\\n\\\"\"\r\n", &["set", "a", "A\n\""]),
        (b"set a '\\'\\x41'\r\n", &["set", "a", "'\\x41"]),
        (b"set a \"\"\n", &["set", "a", ""]),
        (b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n", &["PING"]),
    ];
    for (bytes, words) in cases {
        assert_eq!(whole(bytes), (vec![request(words)], None), "{}", bytes.escape_ascii());
    }
}

#[test]
fn errors_match_redis() {
    let long = [b'a'; 70_000];
    let many = [b"*".as_slice(), &[b'1'; 70_000]].concat();
    let digits = [b"*1\r\n$".as_slice(), &[b'1'; 70_000]].concat();
    let cases: [(&[u8], &str); 16] = [
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$ 3\r\n", "invalid bulk length"),
        (b"*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*9999\r\n", "invalid multibulk length"),
        (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
        (b"*1\r\n:4\r\n", "expected '$', got ':'"),
        (b"PING 'a\r\n", "unbalanced quotes in request"),
        (b"PING 'a'b\r\n", "unbalanced quotes in request"),
        (&long, "too big inline request"),
        (&many, "too big mbulk count string"),
        (&digits, "too big bulk count string"),
    ];
    for (bytes, text) in cases {
        let shown = bytes.get(..40).unwrap_or(bytes).escape_ascii().to_string();
        assert_eq!(whole(bytes).1, Some(format!("ERR Protocol error: {text}")), "{shown}");
    }
}

#[test]
fn unauthenticated_frames_have_tighter_bounds() {
    let small = |bytes: &[u8]| decoded(bytes, bytes.len(), &Bounds::BEFORE_PASSWORD).1;
    let error = |text: &str| Some(format!("ERR Protocol error: {text}"));
    assert_eq!(small(b"*11\r\n"), error("unauthenticated multibulk length"));
    assert_eq!(small(b"*1\r\n$16385\r\n"), error("unauthenticated bulk length"));
    assert_eq!(small(b"*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n"), None);
}

#[test]
fn total_argument_size_is_bounded() {
    let word = vec![b'x'; Bounds::DEFAULT.argument_bytes_max];
    let request: Request = vec![Bytes::from(word); 3];
    let error = Some("ERR Protocol error: too big request".to_owned());
    assert_eq!(decoded(&encoded(&request), 4_096, &Bounds::DEFAULT), (Vec::new(), error));
}

/// A short one would keep the whole buffer alive.
#[test]
fn only_long_arguments_share_the_input_buffer() {
    let long = "x".repeat(5_000);
    let mut buffer = BytesMut::from(format!("*2\r\n$3\r\nGET\r\n$5000\r\n{long}\r\n").as_bytes());
    let came_in = buffer.as_ptr() as usize..buffer.as_ptr() as usize + buffer.len();
    let request = Decoder::default().decode(&mut buffer, &Bounds::DEFAULT).unwrap().unwrap();
    assert!(!came_in.contains(&(request[0].as_ptr() as usize)));
    assert!(came_in.contains(&(request[1].as_ptr() as usize)));
}

/// Inputs that a fuzzer found interesting, and some that were worth trying from the start.
#[test]
fn fuzz_corpus_never_panics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/decode");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(files.len() >= 10, "the corpus is missing");
    for file in files {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        same_in_pieces(&bytes);
    }
}

/// However bytes are split into pieces, they decode the same.
fn same_in_pieces(bytes: &[u8]) {
    for bounds in [Bounds::DEFAULT, Bounds::BEFORE_PASSWORD] {
        let (requests, error) = decoded(bytes, bytes.len(), &bounds);
        for piece in [1, 2, 3, 7] {
            assert_eq!(decoded(bytes, piece, &bounds), (requests.clone(), error.clone()));
        }
        for request in requests {
            assert!(!request.is_empty() && request.len() <= bounds.arguments_max);
        }
    }
}

proptest! {
    #[test]
    fn encoded_requests_are_decoded(
        requests in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8), 0..6),
        piece in 1..50_usize,
    ) {
        let requests: Vec<Request> =
            requests.into_iter().map(|r| r.into_iter().map(Bytes::from).collect()).collect();
        let bytes: Vec<u8> = requests.iter().flat_map(encoded).collect();
        prop_assert_eq!(decoded(&bytes, piece, &Bounds::DEFAULT), (requests, None));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        same_in_pieces(&bytes);
    }

    #[test]
    fn random_requests_never_panic(
        parts in prop::collection::vec(prop::sample::select(vec![
            "*1\r\n", "*2\r\n", "*-1\r\n", "*0\r\n", "$3\r\n", "$0\r\n", "$-1\r\n", "GET", "\r\n",
            "\n", "\r", "a", "\"", "'", "\\x4", " ", "$", "*", "99999999999",
        ]), 0..20),
    ) {
        same_in_pieces(parts.concat().as_bytes());
    }
}
