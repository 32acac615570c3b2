//! Parses lines.

use crate::transact::{self, Exec};
use crate::tree;
use holdfast_core::{
    Acquire, Command, Door, Label, Lease, Limits, LockName, Mode, NodeOp, Note, Proof, Reason,
    RequestId, RequestKey, RequestRef, Revoke, Scope, Secret, SessionKind, SessionRef, Target,
    Token, Value, Wait,
};
use std::collections::BTreeMap;

/// A parsed line.
pub(crate) struct Parsed {
    /// The actor; empty for lines without one.
    pub(crate) actor: String,
    pub(crate) verb: Verb,
}

pub(crate) enum Verb {
    Tick {
        elapsed_ms: u64,
        term: Option<u64>,
    },
    Expire {
        term: Option<u64>,
    },
    Open {
        ttl_ms: u64,
        label: Option<Label>,
        kind: SessionKind,
        number: Option<u64>,
    },
    Watch(Scope),
    Unwatch(Scope),
    Get(LockName),
    Show(LockName),
    List {
        prefix: String,
        after: Option<LockName>,
        limit: usize,
    },
    Why(LockName),
    History(LockName),
    Sessions,
    Counts,
    Snapshot,
    Restore {
        unix_s: u64,
    },
    Limits(Box<Limits>),
    /// Reads keys; all of them if the list is empty.
    Look(Vec<LockName>),
    Key(LockName),
    Keys {
        prefix: String,
        after: Option<LockName>,
        limit: usize,
    },
    Exec(Exec),
    /// Changes znodes.
    Tree(Vec<NodeOp>),
    /// Attaches the session to another connection.
    Attach,
    /// Shows znodes.
    Nodes(String),
    Ask(Box<Asked>),
}

/// A command of an actor, before its session and tickets are filled in.
pub(crate) struct Asked {
    verb: String,
    words: Vec<String>,
    options: Options,
    pub(crate) number: Option<u64>,
}

pub(crate) type Error = String;

/// `key=value` options and bare flags. Each must be used.
struct Options(BTreeMap<String, String>);

impl Options {
    fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    fn flag(&mut self, key: &str) -> bool {
        self.take(key).is_some()
    }

    fn number(&mut self, key: &str) -> Result<Option<u64>, Error> {
        self.take(key).map(|text| number(key, &text)).transpose()
    }

    fn duration(&mut self, key: &str) -> Result<Option<u64>, Error> {
        self.take(key).map(|text| duration_ms(&text)).transpose()
    }

    fn label(&mut self, key: &str) -> Result<Option<Label>, Error> {
        self.take(key).map(|text| Label::parse(text).map_err(|e| e.to_string())).transpose()
    }

    fn token(&mut self) -> Result<Option<Token>, Error> {
        Ok(self.number("token")?.map(Token))
    }

    fn end(self) -> Result<(), Error> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((key, _)) => Err(format!("{key} does not go here")),
        }
    }
}

/// Words that are options on their own.
const FLAGS: [&str; 7] = ["shared", "permanent", "try", "force", "node", "alone", "unconfirmed"];

fn is_flag(verb: &str, word: &str) -> bool {
    match verb {
        // The rest is text.
        "note" => false,
        "put" => word == "shared",
        _ => FLAGS.contains(&word),
    }
}

/// Parses a line; `None` if there is nothing to do.
pub(crate) fn line(line: &str) -> Result<Option<Parsed>, Error> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (actor, rest) = match line.split_once(':') {
        Some((actor, rest)) if is_word(actor) => (actor.trim(), rest),
        _ => ("", line),
    };
    let mut words = split(rest)?.into_iter();
    let verb =
        words.next().ok_or("say what to do after the colon, for instance: acquire seat-12A")?;
    if verb == "exec" {
        let words: Vec<String> = words.collect();
        let verb = Verb::Exec(transact::exec(&words)?);
        return Ok(Some(Parsed { actor: acting(actor, "exec")?, verb }));
    }
    if verb == "zk" {
        let words: Vec<String> = words.collect();
        let verb = Verb::Tree(tree::ops(&words)?);
        return Ok(Some(Parsed { actor: acting(actor, "zk")?, verb }));
    }
    let mut plain = Vec::new();
    let mut options = BTreeMap::new();
    for word in words {
        match word.split_once('=') {
            Some((key, value)) if is_word(key) => {
                options.insert(key.to_owned(), value.to_owned());
            }
            _ if is_flag(&verb, &word) => {
                options.insert(word, String::new());
            }
            _ => plain.push(word),
        }
    }
    read(actor, verb, plain, Options(options)).map(Some)
}

fn is_word(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Splits into words, keeping `"quoted text"` together.
fn split(text: &str) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut any) = (false, false);
    for c in text.chars() {
        match c {
            '"' => (quoted, any) = (!quoted, true),
            c if c.is_whitespace() && !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            c => {
                word.push(c);
                any = true;
            }
        }
    }
    if quoted {
        return Err("a quote is not closed".to_owned());
    }
    if any {
        words.push(word);
    }
    Ok(words)
}

fn read(
    actor: &str,
    verb: String,
    plain: Vec<String>,
    mut options: Options,
) -> Result<Parsed, Error> {
    let mut actor = actor.to_owned();
    let first = || plain.first().ok_or(format!("{verb} needs a name"));
    let a_name = || name(first()?);
    let needs_actor = !matches!(
        verb.as_str(),
        "tick"
            | "expire"
            | "show"
            | "ls"
            | "why"
            | "history"
            | "sessions"
            | "counts"
            | "snapshot"
            | "restore"
            | "limits"
            | "key"
            | "keys"
            | "nodes"
    );
    if needs_actor {
        acting(&actor, &verb)?;
    }
    let parsed = match verb.as_str() {
        "tick" => Verb::Tick { elapsed_ms: duration_ms(first()?)?, term: options.number("term")? },
        "expire" => {
            actor = first()?.clone();
            Verb::Expire { term: options.number("term")? }
        }
        "open" => Verb::Open {
            ttl_ms: options.duration("ttl")?.unwrap_or(10_000),
            label: options.label("label")?,
            kind: match (options.number("of")?, options.flag("node")) {
                (Some(node), _) => SessionKind::NodeOf { node },
                (None, true) => SessionKind::Node,
                (None, false) => SessionKind::Client,
            },
            number: options.number("number")?,
        },
        "watch" => Verb::Watch(scope(first()?)?),
        "unwatch" => Verb::Unwatch(scope(first()?)?),
        "get" => Verb::Get(a_name()?),
        "show" => Verb::Show(a_name()?),
        "ls" | "keys" => {
            let prefix = plain.first().cloned().unwrap_or_default();
            let after = options.take("after").map(|after| name(&after)).transpose()?;
            let limit = options.number("limit")?.and_then(|limit| usize::try_from(limit).ok());
            let limit = limit.unwrap_or(20);
            match verb.as_str() {
                "ls" => Verb::List { prefix, after, limit },
                _ => Verb::Keys { prefix, after, limit },
            }
        }
        "attach" => Verb::Attach,
        "nodes" => Verb::Nodes(plain.first().cloned().unwrap_or_else(|| "/".to_owned())),
        "look" => Verb::Look(transact::looked_at(&plain)?),
        "key" => Verb::Key(a_name()?),
        "why" => Verb::Why(a_name()?),
        "history" => Verb::History(a_name()?),
        "sessions" => Verb::Sessions,
        "counts" => Verb::Counts,
        "snapshot" => Verb::Snapshot,
        "restore" => Verb::Restore {
            unix_s: options.number("unix")?.ok_or("restore needs unix=SECONDS, the wall clock")?,
        },
        "limits" => Verb::Limits(Box::new(limits(&mut options)?)),
        "acquire" | "release" | "renew" | "persist" | "cancel" | "note" | "recovered"
        | "upgrade" | "downgrade" | "outcome" | "close" | "revoke" | "force" | "put" | "raise" => {
            let number = options.number("number")?;
            let asked = Asked { verb, words: plain, options, number };
            return Ok(Parsed { actor, verb: Verb::Ask(Box::new(asked)) });
        }
        _ => return Err(format!("there is no verb {verb}: type help")),
    };
    options.end()?;
    Ok(Parsed { actor, verb: parsed })
}

/// The actor; an error if there is none.
fn acting(actor: &str, verb: &str) -> Result<String, Error> {
    if actor.is_empty() {
        return Err(format!("who? Write it as `ana: {verb} ...`, or type help"));
    }
    Ok(actor.to_owned())
}

pub(crate) fn name(text: &str) -> Result<LockName, Error> {
    LockName::parse(text).map_err(|error| error.to_string())
}

fn scope(text: &str) -> Result<Scope, Error> {
    match text.strip_suffix('*') {
        Some("") => Ok(Scope::Prefix(None)),
        Some(prefix) => Ok(Scope::Prefix(Some(name(prefix)?))),
        None => Ok(Scope::Name(name(text)?)),
    }
}

fn number(key: &str, text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| format!("{key} must be a number, not {text}"))
}

/// Parses a duration, as in `250ms`, `5s`, `2m`, `1h` or `1d`, into milliseconds.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no duration: write 500ms, 15s, 2m, 1h or 1d");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms: u64 = match text.strip_prefix(digits) {
        Some("ms") => 1,
        Some("s") => 1_000,
        Some("m") => 60_000,
        Some("h") => 3_600_000,
        Some("d") => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit_ms).ok_or_else(wrong)
}

fn limits(options: &mut Options) -> Result<Limits, Error> {
    let mut limits = Limits::DEFAULT;
    let fields: [(&str, &mut usize); 20] = [
        ("names", &mut limits.names_per_ticket_max),
        ("waiters_per_lock", &mut limits.waiters_per_lock_max),
        ("sessions", &mut limits.sessions_max),
        ("requests_per_session", &mut limits.requests_per_session_max),
        ("session_memory_bytes", &mut limits.session_memory_bytes_max),
        ("deaths", &mut limits.deaths_max),
        ("steps", &mut limits.steps_max),
        ("claim_steps", &mut limits.claim_steps_max),
        ("circle_links", &mut limits.circle_links_max),
        ("history", &mut limits.history_max),
        ("history_bytes", &mut limits.history_bytes_max),
        ("bytes", &mut limits.bytes_max),
        ("bytes_reserve", &mut limits.bytes_reserve),
        ("tickets", &mut limits.tickets_max),
        ("objects", &mut limits.objects_max),
        ("object_bytes", &mut limits.object_bytes_max),
        ("object_elements", &mut limits.object_elements_max),
        ("keys_read", &mut limits.keys_read_max),
        ("keys_written", &mut limits.keys_written_max),
        ("published", &mut limits.published_max),
    ];
    for (key, field) in fields {
        if let Some(value) = options.number(key)? {
            *field = usize::try_from(value).map_err(|_| format!("{key} is too large"))?;
        }
    }
    Ok(limits)
}

impl Asked {
    /// Whether the actor needs a session for it.
    pub(crate) fn needs_session(&self) -> bool {
        let has = |key| self.options.0.contains_key(key);
        match self.verb.as_str() {
            "acquire" => !has("alone") && !has("key"),
            "outcome" => !has("key"),
            "close" => true,
            _ => has("request"),
        }
    }

    /// The command. `last` returns the actor's last ticket on a name.
    pub(crate) fn command(
        self,
        actor: &str,
        session: Option<SessionRef>,
        last: impl Fn(&LockName) -> Option<Token>,
    ) -> Result<(Option<RequestRef>, Command), Error> {
        let Self { verb, words, mut options, .. } = self;
        let request = request(&mut options, session)?;
        if verb == "acquire" {
            let names = words.iter().map(|word| name(word)).collect::<Result<_, _>>()?;
            let alone = options.flag("alone") || matches!(request, Some(RequestRef::Alone(_)));
            let session = session.filter(|_| !alone);
            let acquire = acquire(names, actor, session, &mut options)?;
            options.end()?;
            return Ok((request, Command::Acquire(acquire)));
        }
        let command = match verb.as_str() {
            "outcome" => {
                let request = request.ok_or("say which: request=ID or key=RANDOM-TEXT")?;
                options.end()?;
                return Ok((None, Command::Outcome(request)));
            }
            "close" => {
                let session = session.ok_or("there is no session to close")?;
                let wrong = options.take("secret").is_some();
                let secret = if wrong { WRONG } else { session.secret };
                Command::CloseSession(SessionRef { secret, ..session })
            }
            _ => {
                let name = name(words.first().ok_or(format!("{verb} needs a name"))?)?;
                let rest = words.get(1..).unwrap_or_default().join(" ");
                about(&verb, name, &rest, actor, last, &mut options)?
            }
        };
        options.end()?;
        Ok((request, command))
    }
}

fn request(
    options: &mut Options,
    session: Option<SessionRef>,
) -> Result<Option<RequestRef>, Error> {
    if let Some(key) = options.take("key") {
        // A play may use short keys; real clients draw long ones.
        let key = RequestKey::parse(format!("{key:-<16}")).map_err(|error| error.to_string())?;
        return Ok(Some(RequestRef::Alone(key)));
    }
    let id = |number: Option<u64>| number.and_then(RequestId::new);
    let (asked, lowest) = (id(options.number("request")?), id(options.number("lowest")?));
    Ok(asked.zip(session).map(|(id, session)| RequestRef::InSession {
        session,
        id,
        lowest: lowest.unwrap_or(RequestId::FIRST),
    }))
}

/// A secret that belongs to nobody.
const WRONG: Secret = Secret([0xff; 16]);

fn proof(actor: &str, options: &mut Options) -> Result<Proof, Error> {
    match options.take("secret").as_deref() {
        Some("wrong") => Ok(Proof::Secret(WRONG)),
        Some(_) => Err("secret=wrong shows a wrong one; the right one is shown anyway".to_owned()),
        None => match options.take("by_label") {
            Some(label) => Ok(Proof::Label(Label::parse(label).map_err(|e| e.to_string())?)),
            None => Ok(Proof::Secret(super::secret_of(actor))),
        },
    }
}

fn acquire(
    names: Vec<LockName>,
    actor: &str,
    session: Option<SessionRef>,
    options: &mut Options,
) -> Result<Acquire, Error> {
    let door = options.take("door").map_or(Ok(Door::Native), |text| door(&text))?;
    let unconfirmed = options.flag("unconfirmed");
    let lease = match (options.duration("ttl")?, options.flag("permanent")) {
        (Some(ttl_ms), _) if unconfirmed => Lease::Unconfirmed { ttl_ms },
        (Some(ttl_ms), _) => Lease::Deadline { ttl_ms },
        (None, true) => Lease::Permanent,
        (None, false) => Lease::Session,
    };
    let label = options.label("label")?;
    let actor_label = || Label::parse(actor).ok();
    Ok(Acquire {
        names,
        mode: mode(options)?,
        session,
        lease,
        wait: wait(options)?,
        label: label.or_else(|| if session.is_none() { actor_label() } else { None }),
        note: options
            .take("note")
            .map(|note| Note::parse(note).map_err(|e| e.to_string()))
            .transpose()?,
        secret: (door == Door::Native).then(|| super::secret_of(actor)),
        claims: claims(options)?,
        lock_delay_ms: options.duration("delay")?.unwrap_or(0),
        door,
    })
}

pub(crate) fn door(text: &str) -> Result<Door, Error> {
    match text {
        "native" => Ok(Door::Native),
        "redis" => Ok(Door::Redis),
        "zookeeper" => Ok(Door::ZooKeeper),
        "cql" => Ok(Door::Cql),
        other => Err(format!("there is no door {other}")),
    }
}

fn mode(options: &mut Options) -> Result<Mode, Error> {
    let permits = options.number("permits")?;
    Ok(match (permits, options.flag("shared")) {
        (Some(of), _) => Mode::Permit { of: u32::try_from(of).unwrap_or(u32::MAX) },
        (None, true) => Mode::Shared,
        (None, false) => Mode::Exclusive,
    })
}

fn wait(options: &mut Options) -> Result<Wait, Error> {
    Ok(match (options.duration("wait")?, options.flag("try")) {
        (_, true) => Wait::Try,
        (Some(ms), _) => Wait::For { ms },
        (None, false) => Wait::Forever,
    })
}

fn claims(options: &mut Options) -> Result<Vec<Token>, Error> {
    let Some(text) = options.take("claims") else { return Ok(Vec::new()) };
    text.split(',').map(|token| number("claims", token).map(Token)).collect()
}

/// Commands about one name.
fn about(
    verb: &str,
    name: LockName,
    rest: &str,
    actor: &str,
    last: impl Fn(&LockName) -> Option<Token>,
    options: &mut Options,
) -> Result<Command, Error> {
    let token = options.token()?;
    let proves = !matches!(verb, "revoke" | "force" | "put" | "raise");
    let proof = if proves { proof(actor, options)? } else { Proof::Secret(WRONG) };
    let of_actor = || last(&name).filter(|_| matches!(proof, Proof::Secret(_)));
    let target = Target { token: token.or_else(of_actor), name: name.clone() };
    let by = || Label::parse(actor).map_err(|error| error.to_string());
    let reason = |options: &mut Options| {
        Reason::parse(options.take("reason").unwrap_or_default()).map_err(|error| error.to_string())
    };
    let shown = |options: &mut Options| {
        let token = token.or_else(|| last(&name)).ok_or("say which token to show: token=N")?;
        Ok::<_, Error>((token, mode(options)?))
    };
    Ok(match verb {
        "release" => Command::Release { target, proof },
        "cancel" => Command::Cancel { target, proof },
        "persist" => Command::Persist { target, proof },
        "downgrade" => Command::Downgrade { target, proof },
        "recovered" => Command::Recovered { target, proof },
        "renew" => {
            let ttl_ms = options.duration("ttl")?.ok_or("say for how long: ttl=5s")?;
            Command::Renew { target, proof, ttl_ms }
        }
        "note" => {
            let note = Note::parse(rest).map_err(|error| error.to_string())?;
            Command::Note { target, proof, note: (!rest.is_empty()).then_some(note) }
        }
        "upgrade" => {
            let (wait, claims) = (wait(options)?, claims(options)?);
            Command::Upgrade { target, proof, wait, claims }
        }
        "revoke" => Command::Revoke(Revoke {
            name,
            token,
            by: by()?,
            reason: reason(options)?,
            within_ms: options.duration("within")?.ok_or("say by when: within=5s")?,
            force: options.flag("force"),
        }),
        "force" => Command::Force { name, token, by: by()?, reason: reason(options)? },
        "put" => {
            let value = Value::parse(rest).map_err(|error| error.to_string())?;
            let (token, mode) = shown(options)?;
            Command::Put { key: name, value, token, mode }
        }
        "raise" => {
            let (token, mode) = shown(options)?;
            Command::Raise { key: name, token, mode }
        }
        _ => return Err(format!("there is no verb {verb}: type help")),
    })
}
