//! Replays conversations with a real ZooKeeper against Holdfast.
//!
//! The conversations in `recorded/` were recorded by `record/record.py`. The same frames are sent
//! to the pure door, and the replies must match, except for times, session ids, passwords and the
//! order of children. Zxids may differ, but must have the same order.
//!
//! Every recorded frame is also decoded and encoded again, and must give the same bytes.

mod support;

use holdfast_core::{AuthId, Stat};
use holdfast_zookeeper::ClientId;
use holdfast_zookeeper::codec::{
    Connect, Connected, MultiResult, ReadResult, Reader, Reply, ReplyBody, Request, RequestHeader,
    WatchEvent,
};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use support::{Bench, Received};

/// Fewer conversations than this means that some were lost.
const CONVERSATIONS: usize = 7;

fn recorded() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= CONVERSATIONS, "only {} conversations", files.len());
    files
}

struct RecordedFrame {
    client: ClientId,
    sent: bool,
    frame: Vec<u8>,
}

fn lines(file: &Path) -> Vec<RecordedFrame> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (client, rest) = line.split_once(' ').unwrap();
            let (direction, hex) = rest.split_once(' ').unwrap();
            let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            let frame = (0..hex.len()).step_by(2).map(digit).collect();
            let client = ClientId(u64::from(client.as_bytes()[0] - b'a'));
            RecordedFrame { client, sent: direction == ">", frame }
        })
        .collect()
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [&i32::try_from(frame.len()).unwrap().to_be_bytes(), frame].concat()
}

/// One client's side of a conversation: the requests that it has sent.
#[derive(Default)]
struct Asked {
    connected: bool,
    requests: BTreeMap<i32, Request>,
}

/// A frame from a server.
#[derive(Debug, PartialEq)]
enum Answer {
    Connected(Connected),
    Event(WatchEvent),
    Reply(Reply),
}

impl Asked {
    fn read(&mut self, frame: &[u8]) -> Answer {
        if !std::mem::replace(&mut self.connected, true) {
            return Answer::Connected(Connected::decode(frame).unwrap());
        }
        let xid = Reader::new(frame).int().unwrap();
        if xid == -1 {
            return Answer::Event(WatchEvent::decode(frame).unwrap());
        }
        let Some(request) = self.requests.get(&xid) else {
            panic!("a reply to nothing that was asked: {frame:x?}")
        };
        let reply = Reply::decode(frame, request);
        Answer::Reply(reply.unwrap_or_else(|error| panic!("{error}: {request:?} {frame:x?}")))
    }
}

impl Answer {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Connected(connected) => connected.encode(),
            Self::Event(event) => event.encode(),
            Self::Reply(reply) => reply.encode(),
        }
    }
}

/// Parses a request. One that ZooKeeper can't parse either becomes [`Request::Unknown`].
fn read_request(frame: &[u8]) -> (RequestHeader, Request) {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader).unwrap();
    (header, Request::decode(header.op, &mut reader).unwrap_or(Request::Unknown))
}

#[test]
fn recorded_frames_survive_a_round_trip() {
    for file in recorded() {
        let mut asked: BTreeMap<ClientId, Asked> = BTreeMap::new();
        let mut begun = Vec::new();
        for RecordedFrame { client, sent, frame } in lines(&file) {
            let known = asked.entry(client).or_default();
            if !sent {
                assert_eq!(known.read(&frame).encode(), framed(&frame), "{}", file.display());
            } else if !begun.contains(&client) {
                begun.push(client);
                assert_eq!(Connect::decode(&frame).unwrap().encode(), framed(&frame));
            } else {
                let (header, request) = read_request(&frame);
                if request != Request::Unknown {
                    let written = request.encode(header.xid);
                    assert_eq!(written, framed(&frame), "{}: {request:?}", file.display());
                }
                known.requests.insert(header.xid, request);
            }
        }
    }
}

/// Compares replies of two servers, allowing for what may differ between them.
#[derive(Default)]
struct Names {
    /// ZooKeeper's zxids, and their counterparts here.
    zxids: BTreeMap<u64, u64>,
    sessions: BTreeMap<i64, (i64, [u8; 16])>,
}

impl Names {
    fn zxid(&mut self, theirs: u64, ours: u64) -> Result<(), String> {
        let known = *self.zxids.entry(theirs).or_insert(ours);
        let below = self.zxids.range(..theirs).next_back().map(|(_, ours)| *ours);
        let above = self.zxids.range(theirs + 1..).next().map(|(_, ours)| *ours);
        let in_order =
            below.is_none_or(|below| below <= ours) && above.is_none_or(|above| above >= ours);
        if known == ours && in_order {
            return Ok(());
        }
        Err(format!("zxid {theirs} is {ours} here, was {known}, between {below:?} and {above:?}"))
    }

    fn stat(&mut self, theirs: &Stat, ours: &Stat) -> Result<(), String> {
        for (theirs, ours) in
            [(theirs.czxid, ours.czxid), (theirs.mzxid, ours.mzxid), (theirs.pzxid, ours.pzxid)]
        {
            self.zxid(theirs, ours)?;
        }
        let owner = self.sessions.get(&theirs.ephemeral_owner).map(|(id, _)| *id);
        let expected = Stat {
            czxid: ours.czxid,
            mzxid: ours.mzxid,
            pzxid: ours.pzxid,
            ctime_ms: ours.ctime_ms,
            mtime_ms: ours.mtime_ms,
            ephemeral_owner: owner.unwrap_or(theirs.ephemeral_owner),
            ..*theirs
        };
        same(&expected, ours)
    }

    fn answer(&mut self, theirs: Answer, ours: Answer) -> Result<(), String> {
        match (theirs, ours) {
            (Answer::Connected(theirs), Answer::Connected(ours)) => {
                self.sessions.insert(theirs.session, (ours.session, ours.password));
                same(&(theirs.session == 0), &(ours.session == 0))?;
                same(&theirs.timeout_ms, &ours.timeout_ms)?;
                same(&theirs.read_only, &ours.read_only)
            }
            (Answer::Event(theirs), Answer::Event(ours)) => same(&theirs, &ours),
            (Answer::Reply(theirs), Answer::Reply(ours)) => {
                same(&theirs.xid, &ours.xid)?;
                match (theirs.result, ours.result) {
                    (Ok(theirs), Ok(ours)) => self.body(theirs, ours),
                    (theirs, ours) => same(&theirs, &ours),
                }
            }
            (theirs, ours) => same(&theirs, &ours),
        }
    }

    fn body(&mut self, theirs: ReplyBody, ours: ReplyBody) -> Result<(), String> {
        use ReplyBody::{
            Acl, ChildrenStat, DataStat, Multi, MultiRead, PathStat, Stat, Texts, WhoAmI,
        };
        match (theirs, ours) {
            (Stat(theirs), Stat(ours)) => self.stat(&theirs, &ours),
            (PathStat(path, theirs), PathStat(our_path, ours)) => {
                same(&path, &our_path)?;
                self.stat(&theirs, &ours)
            }
            (DataStat(data, theirs), DataStat(our_data, ours)) => {
                same(&data, &our_data)?;
                self.stat(&theirs, &ours)
            }
            (Acl(acl, theirs), Acl(our_acl, ours)) => {
                same(&acl, &our_acl)?;
                self.stat(&theirs, &ours)
            }
            (WhoAmI(theirs), WhoAmI(ours)) => {
                let schemes = |ids: Vec<AuthId>| {
                    sorted(ids.into_iter().map(|id| format!("{}:{}", id.scheme, id.id)).collect())
                };
                same(&schemes(theirs), &schemes(ours))
            }
            (Texts(theirs), Texts(ours)) => same(&sorted(theirs), &sorted(ours)),
            (ChildrenStat(names, theirs), ChildrenStat(our_names, ours)) => {
                same(&sorted(names), &sorted(our_names))?;
                self.stat(&theirs, &ours)
            }
            (Multi(theirs), Multi(ours)) => {
                same(&theirs.len(), &ours.len())?;
                for (theirs, ours) in theirs.into_iter().zip(ours) {
                    match (theirs, ours) {
                        (MultiResult::Set(theirs), MultiResult::Set(ours)) => {
                            self.stat(&theirs, &ours)?;
                        }
                        (theirs, ours) => same(&theirs, &ours)?,
                    }
                }
                Ok(())
            }
            (MultiRead(theirs), MultiRead(ours)) => {
                same(&theirs.len(), &ours.len())?;
                for (theirs, ours) in theirs.into_iter().zip(ours) {
                    match (theirs, ours) {
                        (
                            ReadResult::DataStat(data, theirs),
                            ReadResult::DataStat(our_data, ours),
                        ) => {
                            same(&data, &our_data)?;
                            self.stat(&theirs, &ours)?;
                        }
                        (ReadResult::Children(theirs), ReadResult::Children(ours)) => {
                            same(&sorted(theirs), &sorted(ours))?;
                        }
                        (theirs, ours) => same(&theirs, &ours)?,
                    }
                }
                Ok(())
            }
            (theirs, ours) => same(&theirs, &ours),
        }
    }
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

fn same<T: PartialEq + Debug>(theirs: &T, ours: &T) -> Result<(), String> {
    if theirs == ours {
        return Ok(());
    }
    Err(format!("\n  ZooKeeper: {theirs:?}\n  Holdfast:  {ours:?}"))
}

#[test]
fn replies_match_the_recorded_zookeeper() {
    let wrong: Vec<String> = recorded().iter().flat_map(|file| replay(file)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Replays one conversation, and returns the differences.
fn replay(file: &Path) -> Vec<String> {
    let mut bench = Bench::new();
    let mut names = Names::default();
    let mut theirs: BTreeMap<ClientId, Asked> = BTreeMap::new();
    let mut ours: BTreeMap<ClientId, Asked> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (at, RecordedFrame { client, sent, frame }) in lines(file).into_iter().enumerate() {
        let place = || format!("{}:{}", file.file_name().unwrap().display(), at + 2);
        if sent && !bench.connections.contains_key(&client) {
            bench.open(client);
            let mut connect = Connect::decode(&frame).unwrap();
            if let Some((session, password)) = names.sessions.get(&connect.session)
                && connect.session != 0
            {
                connect.session = *session;
                if connect.password != b"x".repeat(16) {
                    connect.password = password.to_vec();
                }
            }
            bench.send(client, &connect.encode());
        } else if sent {
            let (header, request) = read_request(&frame);
            for side in [&mut theirs, &mut ours] {
                side.entry(client).or_default().requests.insert(header.xid, request.clone());
            }
            bench.send(client, &framed(&frame));
        } else {
            let Some(Received::Frame(our_frame)) = bench.receive(client) else {
                let their_frame = theirs.entry(client).or_default().read(&frame);
                wrong.push(format!("{}: no answer, but {their_frame:?}", place()));
                continue;
            };
            let known = theirs.entry(client).or_default();
            let asked = known.read(&frame);
            // The counters of ZooKeeper's root include what other conversations created there.
            let root = Request::Exists { path: "/".to_owned(), watch: false };
            let of_root = matches!(&asked, Answer::Reply(reply)
                if known.requests.get(&reply.xid) == Some(&root));
            let answered = ours.entry(client).or_default().read(&our_frame[4..]);
            if let Err(what) = names.answer(asked, answered)
                && !of_root
            {
                wrong.push(format!("{}: {what}", place()));
            }
        }
        bench.state.check().unwrap_or_else(|wrong| panic!("{}: {wrong}", place()));
    }
    for (client, _) in ours {
        if let Some(Received::Frame(frame)) = bench.receive(client) {
            wrong.push(format!("{}: {client:?} got one more: {frame:x?}", file.display()));
        }
    }
    wrong
}
