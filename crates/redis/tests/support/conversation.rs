//! Conversations with a server as lines of text, and how to replay them.
//!
//! ```text
//! # SET NX is a try
//! ana> SET job ana NX PX 10000
//! ana< +OK\r\n
//! bo> SET job bo NX PX 10000
//! bo< $-1\r\n
//! ```
//!
//! - `#` starts a conversation. Everyone in it has their own connection.
//! - `>` sends words, `>>` sends exactly these bytes. `>~`: numbers in the replies may differ;
//!   `>*`: their order may; `wait 100` waits for that many milliseconds.
//! - `<` is what was received, also by those who have sent nothing. `(closed)` is the end.
//! - `? reason` and `=`: what Holdfast replies instead, and why.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How the end of a connection is written.
const CLOSED: &str = "(closed)";

/// How long an expected reply may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait after a request without a reply before the next one is sent: a client must be
/// blocked on a list before the other one pushes to it.
const SILENT_AFTER: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conversation {
    pub(crate) title: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// The line as it is in the file.
    line: String,
    /// Who received what, escaped.
    pub(crate) answers: Vec<(String, String)>,
    /// What Holdfast replies instead.
    instead: Vec<(String, String)>,
    /// And why.
    reasons: Vec<String>,
}

/// What a step does.
enum Act<'a> {
    Wait(Duration),
    Send { who: &'a str, bytes: Vec<u8>, like: Like },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Like {
    Exactly,
    NumbersMayDiffer,
    OrderMayDiffer,
}

/// Parses all conversations of a file.
pub(crate) fn read(text: &str) -> Vec<Conversation> {
    let mut all: Vec<Conversation> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(title) = line.strip_prefix("# ") {
            all.push(Conversation { title: title.to_owned(), steps: Vec::new() });
            continue;
        }
        // What precedes the first conversation is for people.
        let Some(conversation) = all.last_mut() else { continue };
        let steps = &mut conversation.steps;
        let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
        let answer = |mark| head.strip_suffix(mark).map(|who| (who.to_owned(), rest.to_owned()));
        if let Some(answer) = answer('<') {
            steps.last_mut().expect("an answer has a request").answers.push(answer);
        } else if let Some(answer) = answer('=') {
            steps.last_mut().expect("an answer has a request").instead.push(answer);
        } else if head == "?" {
            steps.last_mut().expect("a reason has a request").reasons.push(rest.to_owned());
        } else {
            steps.push(Step { line: line.to_owned(), ..Step::default() });
        }
    }
    all
}

/// Formats them as text again.
pub(crate) fn write(all: &[Conversation]) -> String {
    let mut text = String::new();
    for conversation in all {
        let _ = writeln!(text, "\n# {}", conversation.title);
        for step in &conversation.steps {
            let _ = writeln!(text, "{}", step.line);
            for (who, bytes) in &step.answers {
                let _ = writeln!(text, "{who}< {bytes}");
            }
            for reason in &step.reasons {
                let _ = writeln!(text, "? {reason}");
            }
            for (who, bytes) in &step.instead {
                let _ = writeln!(text, "{who}= {bytes}");
            }
        }
    }
    text
}

impl Step {
    fn act(&self) -> Act<'_> {
        if let Some(ms) = self.line.strip_prefix("wait ") {
            return Act::Wait(Duration::from_millis(ms.parse().expect("milliseconds")));
        }
        let (who, said) = self.line.split_once('>').expect("somebody says something");
        let (mark, said) = said.split_once(' ').expect("a request has words");
        let like = match mark {
            "~" => Like::NumbersMayDiffer,
            "*" => Like::OrderMayDiffer,
            _ => Like::Exactly,
        };
        let bytes = if mark == ">" { unescaped(said) } else { request(&words(said)) };
        Act::Send { who, bytes, like }
    }

    /// The replies expected from Holdfast.
    fn expected(&self) -> BTreeMap<&str, String> {
        let answers = if self.instead.is_empty() { &self.answers } else { &self.instead };
        let mut expected: BTreeMap<&str, String> = BTreeMap::new();
        for (who, bytes) in answers {
            expected.entry(who).or_default().push_str(bytes);
        }
        expected
    }
}

/// Splits a line into words, some of them in double quotes.
fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut rest) = (Vec::new(), line.trim_start());
    while !rest.is_empty() {
        let word;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut end = quoted.find('"').expect("a quote ends");
            while quoted[..end].ends_with('\\') && !quoted[..end].ends_with("\\\\") {
                end += 1 + quoted[end + 1..].find('"').expect("a quote ends");
            }
            (word, rest) = (&quoted[..end], &quoted[end + 1..]);
        } else {
            (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        }
        words.push(unescaped(word));
        rest = rest.trim_start();
    }
    words
}

fn request(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The inverse of [`u8::escape_ascii`].
fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, byte == b'\\') {
            (byte, false) => byte,
            _ => match rest.next().expect("something is escaped") {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'x' => {
                    let digits = [rest.next(), rest.next()].map(|digit| digit.expect("two digits"));
                    u8::from_str_radix(&String::from_utf8_lossy(&digits), 16).expect("two digits")
                }
                other => other,
            },
        });
    }
    bytes
}

/// Where the first complete reply ends, in either protocol.
fn reply_end(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    let parts = match bytes[0] {
        b'$' | b'=' | b'!' => {
            let end = usize::try_from(number()?).map_or(line, |len| line + len + 2);
            return (bytes.len() >= end).then_some(end);
        }
        b'*' | b'~' | b'>' => number()?.max(0),
        b'%' => number()? * 2,
        _ => 0,
    };
    let mut end = line;
    for _ in 0..parts {
        end += reply_end(&bytes[end..])?;
    }
    Some(end)
}

/// How many complete replies these are.
fn replies(bytes: &[u8]) -> usize {
    let (mut count, mut at) = (0, 0);
    while let Some(end) = bytes.get(at..).filter(|rest| !rest.is_empty()).and_then(reply_end) {
        (count, at) = (count + 1, at + end);
    }
    count
}

/// Normalizes what may differ.
fn plain(bytes: &str, like: Like) -> String {
    match like {
        Like::Exactly => bytes.to_owned(),
        Like::NumbersMayDiffer => {
            let mut plain = String::new();
            for letter in bytes.chars() {
                match letter {
                    '0'..='9' if plain.ends_with('0') => {}
                    '0'..='9' => plain.push('0'),
                    other => plain.push(other),
                }
            }
            plain
        }
        Like::OrderMayDiffer => {
            let mut parts: Vec<&str> = bytes.split("\\r\\n").collect();
            parts.sort_unstable();
            parts.join(" ")
        }
    }
}

/// Everyone's connection to one server.
pub(crate) struct Party {
    server: SocketAddr,
    connections: BTreeMap<String, TcpStream>,
}

impl Party {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self { server, connections: BTreeMap::new() }
    }

    fn connection(&mut self, who: &str) -> &mut TcpStream {
        let server = self.server;
        self.connections.entry(who.to_owned()).or_insert_with(|| {
            let stream = TcpStream::connect(server).expect("the server listens");
            stream.set_nodelay(true).expect("an option can be set");
            stream
        })
    }

    /// Closes all connections and empties the server.
    fn begin(&mut self) {
        self.connections.clear();
        for words in [["FLUSHALL", ""], ["SCRIPT", "FLUSH"]] {
            let words: Vec<_> = words.iter().filter(|word| !word.is_empty()).collect();
            let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            self.connection("nobody").write_all(&request(&words)).expect("the server listens");
            assert_eq!(self.received("nobody", 1), "+OK\\r\\n");
        }
        self.connections.clear();
    }

    /// What someone receives: `count` replies, or whatever arrives before the end.
    fn received(&mut self, who: &str, count: usize) -> String {
        let until = Instant::now() + TIMEOUT;
        let (mut bytes, mut buffer) = (Vec::new(), [0; 1 << 16]);
        while replies(&bytes) < count {
            if Instant::now() > until {
                return format!("{} and then nothing", bytes.escape_ascii());
            }
            match self.receive(who, &mut buffer, Duration::from_millis(100)) {
                Some(0) => return format!("{}{CLOSED}", bytes.escape_ascii()),
                Some(len) => bytes.extend_from_slice(&buffer[..len]),
                None => {}
            }
        }
        bytes.escape_ascii().to_string()
    }

    /// `None` if nothing arrives within `timeout`; 0 bytes if the connection is closed.
    fn receive(&mut self, who: &str, buffer: &mut [u8], timeout: Duration) -> Option<usize> {
        let stream = self.connection(who);
        stream.set_read_timeout(Some(timeout)).expect("an option can be set");
        match stream.read(buffer) {
            Ok(len) => Some(len),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                None
            }
            Err(_) => Some(0),
        }
    }

    /// Has the conversation, and records what was received.
    pub(crate) fn record(&mut self, conversation: &mut Conversation) {
        const QUIET: Duration = Duration::from_millis(40);
        self.begin();
        for step in &mut conversation.steps {
            match step.act() {
                Act::Wait(time) => std::thread::sleep(time),
                Act::Send { who, bytes, .. } => {
                    self.connection(who).write_all(&bytes).expect("the server listens");
                }
            }
            let who: Vec<String> = self.connections.keys().cloned().collect();
            let mut answers: BTreeMap<String, String> = BTreeMap::new();
            let (mut buffer, mut quiet) = ([0; 1 << 16], Instant::now());
            while quiet.elapsed() < QUIET {
                for who in &who {
                    let received = self.receive(who, &mut buffer, Duration::from_millis(5));
                    let Some(len) = received else { continue };
                    let text = answers.entry(who.clone()).or_default();
                    if len == 0 {
                        if !text.ends_with(CLOSED) {
                            text.push_str(CLOSED);
                        }
                        continue;
                    }
                    text.push_str(&buffer[..len].escape_ascii().to_string());
                    quiet = Instant::now();
                }
            }
            step.answers = answers.into_iter().collect();
        }
    }

    /// Replays the conversation, and reports what is different.
    pub(crate) fn replay(&mut self, conversation: &Conversation) -> Result<(), String> {
        self.begin();
        for step in &conversation.steps {
            let mut like = Like::Exactly;
            match step.act() {
                Act::Wait(time) => std::thread::sleep(time),
                Act::Send { who, bytes, like: how } => {
                    like = how;
                    let sent = self.connection(who).write_all(&bytes);
                    sent.map_err(|error| format!("{}: {error}", step.line))?;
                    // Nothing tells when the server has received it.
                    if !step.answers.iter().any(|(answered, _)| answered == who) {
                        std::thread::sleep(SILENT_AFTER);
                    }
                }
            }
            for (who, expected) in step.expected() {
                let closes = expected.ends_with(CLOSED);
                let whole = unescaped(expected.strip_suffix(CLOSED).unwrap_or(&expected));
                let received = self.received(who, replies(&whole) + usize::from(closes));
                if plain(&received, like) != plain(&expected, like) {
                    return Err(format!(
                        "{}\n  to {who}:   {received}\n  expected: {expected}",
                        step.line
                    ));
                }
            }
        }
        Ok(())
    }
}
