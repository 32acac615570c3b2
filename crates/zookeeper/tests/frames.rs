//! Frames: no input makes the decoder panic, and everything encodable survives a round trip.

use holdfast_core::{Acl, AuthId, NodeData, NodeKind, NodeOp, Stat, validate_path};
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::{
    AddWatchMode, AuthPacket, BadFrame, Connect, Connected, Decoder, FRAME_BYTES_MAX, First,
    MultiResult, ReadOp, ReadResult, Reader, Reply, ReplyBody, Request, RequestHeader, SetWatches,
    WatchEvent, WatchEventType, WatcherType,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn path() -> String {
    "/locks/seat".to_owned()
}

fn data(bytes: &[u8]) -> Option<NodeData> {
    NodeData::parse(bytes).ok()
}

fn ops() -> Vec<(NodeOp, bool)> {
    let create = |kind, sequential| {
        let (path, data, acl) = (path(), data(b"x"), vec![Acl::open()]);
        NodeOp::Create { path, data, acl, kind, sequential }
    };
    vec![
        (create(NodeKind::Persistent, false), false),
        (create(NodeKind::Ephemeral, false), false),
        (create(NodeKind::Persistent, true), true),
        (create(NodeKind::Ephemeral, true), true),
        (create(NodeKind::Container, false), true),
        (create(NodeKind::Ttl { ms: 5_000 }, false), true),
        (create(NodeKind::Ttl { ms: 5_000 }, true), true),
        (NodeOp::Delete { path: path(), version: None }, false),
        (NodeOp::SetData { path: path(), data: None, version: Some(3) }, false),
        (NodeOp::Check { path: path(), version: Some(0) }, false),
    ]
}

fn requests() -> Vec<Request> {
    let (path, watch) = (path(), true);
    let mut requests = vec![
        Request::Ping,
        Request::Exists { path: path.clone(), watch },
        Request::GetData { path: path.clone(), watch },
        Request::GetChildren { path: path.clone(), watch, stat: false },
        Request::GetChildren { path: path.clone(), watch, stat: true },
        Request::GetAcl { path: path.clone() },
        Request::Sync { path: path.clone() },
        Request::Multi(ops()),
        Request::Multi(Vec::new()),
        Request::MultiRead(vec![
            ReadOp::GetChildren { path: path.clone() },
            ReadOp::GetData { path: path.clone() },
        ]),
        Request::Auth(AuthPacket { scheme: "digest".into(), auth: b"ana:secret".to_vec() }),
        Request::SetWatches(SetWatches { zxid: 7, data: vec![path.clone()], ..Default::default() }),
        Request::SetWatches(SetWatches {
            persistent: Some((vec![path.clone()], Vec::new())),
            ..Default::default()
        }),
        Request::AddWatch { path: path.clone(), mode: AddWatchMode::Persistent },
        Request::AddWatch { path: path.clone(), mode: AddWatchMode::PersistentRecursive },
        Request::WhoAmI,
        Request::GetEphemerals { prefix: "/".into() },
        Request::GetAllChildrenNumber { path: path.clone() },
        Request::CloseSession,
        Request::Write {
            op: NodeOp::SetAcl { path: path.clone(), acl: vec![Acl::open()], version: Some(1) },
            stat: false,
        },
    ];
    for kind in [WatcherType::Children, WatcherType::Data, WatcherType::Any] {
        for remove in [false, true] {
            requests.push(Request::Watches { path: path.clone(), kind, remove });
        }
    }
    requests.extend(ops().into_iter().map(|(op, stat)| Request::Write { op, stat }));
    requests
}

#[test]
fn requests_survive_a_round_trip() {
    for request in requests() {
        let frame = request.encode(9);
        let mut reader = Reader::new(&frame[4..]);
        let header = RequestHeader::decode(&mut reader).unwrap();
        assert_eq!((header.xid, header.op), (9, request.op()));
        assert_eq!(Request::decode(header.op, &mut reader), Ok(request));
        assert!(reader.is_empty());
    }
}

#[test]
fn replies_survive_a_round_trip() {
    let stat = Stat { czxid: 1, version: -2, ephemeral_owner: i64::MIN, ..Stat::default() };
    let (path, texts) = (path(), vec!["a".to_owned(), "b".to_owned()]);
    let create = |stat| Request::Write { op: ops()[0].0.clone(), stat };
    let read = |path: String| Request::GetData { path, watch: false };
    let id = AuthId { scheme: "ip".into(), id: "127.0.0.1".into() };
    for (request, body) in [
        (Request::Ping, ReplyBody::Empty),
        (create(false), ReplyBody::Path(path.clone())),
        (create(true), ReplyBody::PathStat(path.clone(), stat)),
        (Request::Exists { path: path.clone(), watch: false }, ReplyBody::Stat(stat)),
        (read(path.clone()), ReplyBody::DataStat(None, stat)),
        (Request::GetAcl { path: path.clone() }, ReplyBody::Acl(vec![Acl::open()], stat)),
        (Request::GetEphemerals { prefix: path.clone() }, ReplyBody::Texts(texts.clone())),
        (
            Request::GetChildren { path: path.clone(), watch: false, stat: true },
            ReplyBody::ChildrenStat(texts.clone(), stat),
        ),
        (
            Request::Multi(ops()),
            ReplyBody::Multi(vec![
                MultiResult::Created(path.clone()),
                MultiResult::CreatedStat(19, path.clone(), stat),
                MultiResult::Deleted,
                MultiResult::Set(stat),
                MultiResult::Checked,
                MultiResult::Error(-2),
            ]),
        ),
        (
            Request::MultiRead(Vec::new()),
            ReplyBody::MultiRead(vec![
                ReadResult::Children(texts),
                ReadResult::DataStat(data(b"y"), stat),
                ReadResult::Error(Code::NoNode),
            ]),
        ),
        (Request::WhoAmI, ReplyBody::WhoAmI(vec![id])),
        (Request::GetAllChildrenNumber { path: path.clone() }, ReplyBody::Number(4)),
    ] {
        for result in [Ok(body), Err(Code::NoAuth)] {
            let reply = Reply { xid: 3, zxid: 77, result };
            assert_eq!(Reply::decode(&reply.encode()[4..], &request), Ok(reply));
        }
    }
    let event = WatchEvent { what: WatchEventType::ChildrenChanged, path };
    assert_eq!(WatchEvent::decode(&event.encode()[4..]), Ok(event));
    for read_only in [None, Some(false)] {
        let connected = Connected { timeout_ms: 5, session: 1, password: [7; 16], read_only };
        assert_eq!(Connected::decode(&connected.encode()[4..]), Ok(connected));
    }
}

#[test]
fn connect_requests_have_44_or_45_bytes() {
    for (read_only, len) in [(None, 44), (Some(true), 45)] {
        let connect = Connect {
            protocol_version: 0,
            last_zxid: 5,
            timeout_ms: 10_000,
            session: 3,
            password: vec![1; 16],
            read_only,
        };
        let frame = connect.encode();
        assert_eq!(frame.len(), len + 4);
        // Byte by byte.
        let mut decoder = Decoder::default();
        for byte in &frame[..frame.len() - 1] {
            decoder.push(&[*byte]);
            assert_eq!(decoder.first(), Ok(None));
        }
        decoder.push(&frame[frame.len() - 1..]);
        assert_eq!(decoder.first(), Ok(Some(First::Connect(connect))));
        assert_eq!(decoder.kept_bytes(), 0);
    }
}

#[test]
fn oversized_frame_is_refused_before_it_is_buffered() {
    for len in [-1, i32::MIN, i32::MAX, FRAME_BYTES_MAX as i32 + 1] {
        let mut decoder = Decoder::default();
        decoder.push(&len.to_be_bytes());
        assert_eq!(decoder.frame(), Err(BadFrame::Length(len)));
    }
    let mut decoder = Decoder::default();
    decoder.push(&(FRAME_BYTES_MAX as i32).to_be_bytes());
    assert_eq!(decoder.frame(), Ok(None));
}

/// The length of a vector comes from the client: it must not make the decoder allocate room for two
/// billion elements.
#[test]
fn length_beyond_the_end_allocates_nothing() {
    let mut frame = Vec::new();
    frame.extend_from_slice(&0_i64.to_be_bytes());
    frame.extend_from_slice(&i32::MAX.to_be_bytes());
    assert!(Request::decode(101, &mut Reader::new(&frame)).is_err());
}

#[test]
fn path_validation_matches_zookeeper() {
    for good in ["/", "/a", "/a/b", "/.a", "/a.", "/...", "/ä中", "/ ", "/a b", "/\u{f900}"] {
        assert_eq!(validate_path(good), Ok(()), "{good:?}");
    }
    let long = format!("/{}", "x".repeat(5_000));
    for bad in [
        "",
        "a",
        "a/b",
        "/a/",
        "//",
        "//a",
        "/a//b",
        "/.",
        "/..",
        "/a/.",
        "/a/../b",
        "/./a",
        "/\0",
        "/a\u{1}",
        "/\u{1f}",
        "/\u{7f}",
        "/\u{9f}",
        "/\u{e000}",
        "/\u{f8ff}",
        "/\u{fff0}",
        "/\u{ffff}",
        "/😀",
        &long,
    ] {
        assert!(validate_path(bad).is_err(), "{bad:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..Default::default() })]

    #[test]
    fn random_bytes_never_panic(
        op in prop_oneof![-12..30_i32, 100..110_i32, any::<i32>()],
        bytes in vec(any::<u8>(), 0..200),
        small in vec(prop_oneof![Just(0_u8), 0..4_u8, Just(255), any::<u8>()], 0..120),
    ) {
        for bytes in [&bytes, &small] {
            let _ = Request::decode(op, &mut Reader::new(bytes));
            let _ = Connect::decode(bytes);
            let _ = Connected::decode(bytes);
            let _ = WatchEvent::decode(bytes);
            for request in requests() {
                let _ = Reply::decode(bytes, &request);
            }
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            let _ = decoder.first();
            while let Ok(Some(_)) = decoder.frame() {}
        }
    }

    /// A request with one changed byte is either decoded or refused.
    #[test]
    fn damaged_requests_never_panic(which in 0..40_usize, at in 0..300_usize, byte in any::<u8>()) {
        let requests = requests();
        let request = &requests[which % requests.len()];
        let mut frame = request.encode(1);
        let at = 4 + at % (frame.len() - 4);
        frame[at] = byte;
        let mut reader = Reader::new(&frame[4..]);
        if let Ok(header) = RequestHeader::decode(&mut reader) {
            let _ = Request::decode(header.op, &mut reader);
        }
    }
}

/// The first frame, the frames after it, and whether everything could be decoded.
fn decoded(bytes: &[u8], piece: usize) -> (Option<First>, Vec<Vec<u8>>, bool) {
    let (mut decoder, mut first, mut frames) = (Decoder::default(), None, Vec::new());
    for part in bytes.chunks(piece.max(1)) {
        decoder.push(part);
        loop {
            if first.is_none() {
                match decoder.first() {
                    Ok(Some(found)) => first = Some(found),
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

/// The fuzzer's corpus: its seeds, and inputs that it has found.
#[test]
fn fuzz_corpus_never_panics() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/decode");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(files.len() >= 20, "the corpus is missing");
    for file in files {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let whole = decoded(&bytes, bytes.len());
        for piece in [1, 2, 3, 7] {
            assert_eq!(decoded(&bytes, piece), whole);
        }
        for frame in whole.1 {
            let mut reader = Reader::new(&frame);
            let Ok(header) = RequestHeader::decode(&mut reader) else { continue };
            let Ok(request) = Request::decode(header.op, &mut reader) else { continue };
            if request != Request::Unknown {
                let mut again = Reader::new(&frame[8..]);
                assert_eq!(Request::decode(header.op, &mut again), Ok(request.clone()));
                let written = request.encode(header.xid);
                let mut reader = Reader::new(&written[4..]);
                let header = RequestHeader::decode(&mut reader).unwrap();
                assert_eq!(Request::decode(header.op, &mut reader), Ok(request));
            }
        }
    }
}

/// kazoo's `CREATOR_ALL_ACL` has an empty id, which it writes as null.
#[test]
fn an_id_may_be_null() {
    let id = AuthId { scheme: "auth".to_owned(), id: String::new() };
    let acl = vec![Acl { perms: 31, id }];
    let (path, data, kind, sequential) = (path(), None, NodeKind::Persistent, false);
    let op = NodeOp::Create { path, data, acl, kind, sequential };
    let request = Request::Write { op, stat: false };
    let mut frame = request.encode(1);
    // The id is followed by the flags.
    let at = frame.len() - 8;
    assert_eq!(frame[at..], [0; 8]);
    frame[at..at + 4].copy_from_slice(&[0xff; 4]);
    let mut reader = Reader::new(&frame[4..]);
    let header = RequestHeader::decode(&mut reader).unwrap();
    assert_eq!(Request::decode(header.op, &mut reader), Ok(request));
    // A path may not be null.
    assert!(Reader::new(&[0xff; 4]).text().is_err());
}
