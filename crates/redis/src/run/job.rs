//! One command, or a whole MULTI, which runs to one reply and one transaction.

use super::size::{self, REPLY_BYTES_MAX};
use super::{Database, Local, Overlay, ReadRequest, ReadSet, Stop, run};
use crate::command::{Command, Expire, Keys, Lists, Parsed, Scripting, SetCondition, Strings};
use crate::error::Error;
use crate::resp::Reply;
use holdfast_core::{InvalidField, Limits, LockName, Refusal, Stamp, Transaction};
use std::sync::OnceLock;

/// How often a job may find that it needs more keys: each time it starts over.
const ROUNDS_MAX: usize = 256;

/// The most that a job may weigh to run while others wait: one unit is a few microseconds.
const LIGHT_MAX: usize = 256;

/// The weight of a hash, a list or a description, which is copied as a whole.
const OBJECT_WEIGHT: usize = 16;

/// Bytes of joined commands: half of what a transaction may have.
const JOINED_BYTES_MAX: usize = 1 << 18;

/// Commands that run together.
#[derive(Debug, Clone)]
pub struct Job {
    commands: Vec<Parsed>,
    /// Whether the reply is one array of all replies.
    exec: bool,
    weight: usize,
    bytes: usize,
    /// Keys that must still have these stamps, or else `EXEC` does nothing.
    watched: Vec<(LockName, Stamp)>,
    database: Database,
    /// The seed of `math.random`: drawn once, so that a script that is run again takes the same
    /// path.
    random: OnceLock<u64>,
}

/// The result of running a job with the keys it was given.
#[derive(Debug)]
pub enum Run {
    /// All of these must be read as well, at the same moment; then run it again.
    Need(ReadRequest),
    /// It is done.
    Done(Done),
    /// There is nothing to pop. Run it again when one of these lists changes.
    Block(Block),
    /// It needs Lua, which may not run here.
    Lua,
    /// The joined commands are too much for one transaction: see [`Job::split`].
    Apart,
}

/// The result of a job that is done.
#[derive(Debug)]
pub struct Done {
    /// The replies to send once the transaction is applied: one, or one for each joined command.
    pub replies: Vec<Reply>,
    /// The transaction to apply. If `None`, the replies are only right if the keys were read from
    /// current state.
    pub transaction: Option<Transaction>,
    /// Whether the replies depend on keys.
    pub reads: bool,
    /// Whether the job must run again after that, starting from [`Job::wanted`], for what is left
    /// to do. This reply is then not sent.
    pub again: bool,
    /// The database that is selected afterwards, if the job could select one.
    pub database: Option<Database>,
    /// The reply if the lock is taken by someone that the key does not show.
    if_busy: Option<Reply>,
}

/// A job that is blocked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The lists it waits for.
    pub names: Vec<LockName>,
    /// For how long; `None` means forever.
    pub wait_ms: Option<u64>,
}

/// What to do after the core has refused a transaction.
#[derive(Debug, PartialEq)]
pub enum Answered {
    /// Read again, starting from [`Job::wanted`], and run again.
    Again,
    /// Send this reply.
    Reply(Reply),
}

impl Job {
    /// A single command.
    pub fn one(command: Parsed, database: Database) -> Self {
        Self::new(vec![command], false, Vec::new(), database)
    }

    fn new(
        commands: Vec<Parsed>,
        exec: bool,
        watched: Vec<(LockName, Stamp)>,
        database: Database,
    ) -> Self {
        let weight = commands.iter().map(weight).fold(watched.len(), usize::saturating_add);
        let bytes = commands.iter().map(|parsed| parsed.bytes).fold(0, usize::saturating_add);
        let random = OnceLock::new();
        Self { commands, exec, weight, bytes, watched, database, random }
    }

    /// All commands of a MULTI.
    pub fn exec(
        commands: Vec<Parsed>,
        watched: Vec<(LockName, Stamp)>,
        database: Database,
    ) -> Self {
        Self::new(commands, true, watched, database)
    }

    /// Joins the client's next job: both then become one transaction, with a reply to each command.
    /// Returns the job if it must run alone, or together they would be too much.
    pub fn join(&mut self, next: Self) -> Result<(), Self> {
        let weight = self.weight.saturating_add(next.weight);
        let bytes = self.bytes.saturating_add(next.bytes);
        let fits = weight <= LIGHT_MAX && bytes <= JOINED_BYTES_MAX;
        if !fits || !self.joins() || !next.joins() || self.database != next.database {
            return Err(next);
        }
        (self.weight, self.bytes) = (weight, bytes);
        self.commands.extend(next.commands);
        Ok(())
    }

    /// Splits joined jobs up again.
    pub fn split(self) -> impl Iterator<Item = Self> {
        let database = self.database;
        self.commands.into_iter().map(move |command| Self::one(command, database))
    }

    /// How many replies there will be.
    pub fn replies(&self) -> usize {
        if self.exec { 1 } else { self.commands.len() }
    }

    /// Whether it may select another database.
    pub fn may_select(&self) -> bool {
        self.exec
    }

    /// How long it may block, where `Some(None)` means forever; `None` if it does not block.
    pub fn blocks(&self) -> Option<Option<u64>> {
        match self.commands.as_slice() {
            [Parsed { command: Command::Lists(Lists::BlockingPop(_, _, wait_ms)), .. }]
                if !self.exec =>
            {
                Some(*wait_ms)
            }
            _ => None,
        }
    }

    /// Whether it may run while others wait for it.
    pub fn is_light(&self) -> bool {
        self.weight <= LIGHT_MAX || self.blocks().is_some()
    }

    fn joins(&self) -> bool {
        let alone = |parsed: &Parsed| {
            matches!(
                parsed.command,
                Command::Lists(Lists::BlockingPop(..))
                    | Command::Scripting(Scripting::Load(_) | Scripting::Flush)
            ) || lists_all(parsed)
        };
        !self.exec && !self.commands.iter().any(alone)
    }

    /// The keys that are known to be needed before it runs. Invalid keys are skipped: running it
    /// will report them.
    pub fn wanted(&self) -> ReadRequest {
        let keys = self.commands.iter().flat_map(|parsed| &parsed.keys);
        let named = keys.filter_map(|key| self.database.name(key).ok());
        let watched = self.watched.iter().map(|(name, _)| name.clone());
        ReadRequest { names: named.chain(watched).collect(), ..ReadRequest::default() }
    }

    /// Runs it with these keys.
    pub fn run(&self, seen: &ReadSet, local: &dyn Local) -> Run {
        self.go(seen, local, true)
    }

    /// Like [`Job::run`], where Lua may not run.
    pub fn run_without_lua(&self, seen: &ReadSet, local: &dyn Local) -> Run {
        self.go(seen, local, false)
    }

    fn go(&self, seen: &ReadSet, local: &dyn Local, may_run_lua: bool) -> Run {
        let stands = |(name, stamp): &(LockName, Stamp)| {
            seen.keys.get(name).is_some_and(|(_, now)| now == stamp)
        };
        if !self.watched.iter().all(stands) {
            return Run::Done(self.nothing(Reply::NullArray));
        }
        let random = *self.random.get_or_init(|| local.random());
        let mut overlay = Overlay::new(seen, local, self.database, random);
        let mut replies = Vec::with_capacity(self.commands.len());
        let mut reply_bytes = 0_usize;
        for parsed in &self.commands {
            overlay.may_block = !self.exec && self.commands.len() == 1;
            overlay.may_run_lua = may_run_lua;
            // One of its keys may be refused after others were written. A script keeps what it has
            // written, as in Redis.
            let script = matches!(parsed.command, Command::Scripting(_));
            let mark = (parsed.keys.len() > 1 && !script).then(|| overlay.mark());
            match run(&parsed.command, &mut overlay) {
                Ok(reply) => replies.push(reply),
                Err(Stop::Error(error)) => {
                    replies.push(Reply::Error(error));
                    mark.into_iter().for_each(|mark| overlay.back_to(mark));
                }
                Err(Stop::Block { names, wait_ms }) => return Run::Block(Block { names, wait_ms }),
                Err(Stop::Lua) => return Run::Lua,
                Err(Stop::Apart) if self.replies() > 1 => return Run::Apart,
                Err(Stop::Apart) => replies.push(Reply::Error(Error::NOT_DRAWN_YET)),
                Err(Stop::Missing) => {}
            }
            if let Some(missing) = overlay.missing() {
                return self.need(seen, missing);
            }
            let bytes = replies.last().map_or(0, Reply::bytes);
            reply_bytes = reply_bytes.saturating_add(bytes);
            if reply_bytes > REPLY_BYTES_MAX {
                return self.too_large(Error::fixed(
                    "ERR too many bytes in the replies of one transaction: ask for less at once",
                ));
            }
        }
        let reads = overlay.has_read() || !self.watched.is_empty();
        let (again, database) = (overlay.again, self.exec.then_some(overlay.database));
        let mut transaction = overlay.into_transaction();
        if let Some(transaction) = &mut transaction {
            let others: Vec<_> = self
                .watched
                .iter()
                .filter(|(name, _)| !transaction.seen.iter().any(|(seen, _)| seen == name))
                .cloned()
                .collect();
            transaction.seen.extend(others);
            if let Err(error) = size::check(transaction) {
                return self.too_large(error);
            }
        }
        if self.exec {
            replies = vec![Reply::Array(replies)];
        }
        Run::Done(Done { replies, transaction, reads, again, database, if_busy: self.if_busy() })
    }

    /// Requests everything that was read so far, and what is missing.
    fn need(&self, seen: &ReadSet, missing: &ReadRequest) -> Run {
        let mut wanted = self.wanted();
        wanted.names.extend(seen.keys.keys().cloned());
        wanted.listing |= seen.listing.is_some();
        wanted.and(missing.clone());
        wanted.rounds = seen.rounds.saturating_add(1);
        if wanted.names.len() > Limits::DEFAULT.keys_read_max {
            return self.fails(Error::refused(&Refusal::BadRequest(InvalidField::TooManyKeysRead)));
        }
        if wanted.rounds > ROUNDS_MAX {
            return self.fails(Error::fixed(
                "ERR the script reads too many keys one after the other: name them in KEYS",
            ));
        }
        Run::Need(wanted)
    }

    /// It is too large for one transaction. Commands that were merely joined can be split up.
    fn too_large(&self, error: Error) -> Run {
        if self.replies() > 1 { Run::Apart } else { self.fails(error) }
    }

    /// Does nothing and replies with this error.
    fn fails(&self, error: Error) -> Run {
        Run::Done(self.nothing(Reply::Error(error)))
    }

    fn nothing(&self, reply: Reply) -> Done {
        let replies = vec![reply; self.replies()];
        let (again, database) = (false, None);
        Done { replies, transaction: None, reads: true, again, database, if_busy: None }
    }

    /// Setting an absent key is a try: if someone waits there for the end of a lock-delay, it
    /// counts as held.
    fn if_busy(&self) -> Option<Reply> {
        let [Parsed { command: Command::Strings(command), .. }] = self.commands.as_slice() else {
            return None;
        };
        match command {
            _ if self.exec => None,
            Strings::Set { only: SetCondition::IfAbsent, expire, .. }
                if *expire != Expire::Keep =>
            {
                Some(Reply::Null)
            }
            Strings::SetNx(..) | Strings::MSetNx(_) => Some(Reply::Integer(0)),
            _ => None,
        }
    }
}

impl Done {
    /// What to do after the core has refused the transaction.
    pub fn refused(self, refusal: &Refusal) -> Answered {
        match refusal {
            Refusal::Changed { .. } => Answered::Again,
            Refusal::Busy { .. } if self.if_busy.is_some() => {
                Answered::Reply(self.if_busy.unwrap_or(Reply::Null))
            }
            _ => Answered::Reply(Reply::Error(Error::refused(refusal))),
        }
    }
}

/// The weight of a command.
fn weight(parsed: &Parsed) -> usize {
    let keys = parsed.keys.len().max(1);
    let each = match parsed.command {
        Command::Hashes(_) | Command::Lists(_) | Command::Server(_) => OBJECT_WEIGHT,
        _ => 1,
    };
    keys.saturating_mul(each)
}

/// Whether a command goes through all keys.
fn lists_all(parsed: &Parsed) -> bool {
    matches!(
        parsed.command,
        Command::Keys(
            Keys::Keys(_) | Keys::Scan(_) | Keys::DbSize | Keys::RandomKey | Keys::Flush { .. }
        )
    )
}
