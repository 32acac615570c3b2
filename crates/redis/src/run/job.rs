//! One command, or all of a MULTI: run to one reply and one transaction.

use super::size::{self, REPLY_BYTES_MAX};
use super::{Database, Local, Overlay, Seen, Stop, Wanted, run};
use crate::command::{Command, Expire, Keys, Lists, Only, Parsed, Scripting, Strings};
use crate::error::Error;
use crate::resp::Reply;
use holdfast_core::{Bad, Limits, LockName, Refusal, Stamp, Transaction};
use std::sync::OnceLock;

/// How often a job may find that something else must be read: each time it begins anew.
const ROUNDS_MAX: usize = 256;

/// What a job may weigh that others wait for: a weight is a few microseconds.
const LIGHT_MAX: usize = 256;

/// What a hash, a list or a description weighs: all of it is copied.
const OBJECT_WEIGHT: usize = 16;

/// Bytes of commands that are joined: half of what a transaction may have.
const JOINED_BYTES_MAX: usize = 1 << 18;

/// Commands that are done together.
#[derive(Debug, Clone)]
pub struct Job {
    commands: Vec<Parsed>,
    /// Whether the reply is an array of all replies.
    exec: bool,
    weight: usize,
    bytes: usize,
    /// Keys whose stamps must be these, else `EXEC` does nothing.
    watched: Vec<(LockName, Stamp)>,
    database: Database,
    /// Where `math.random` begins: drawn once, so that a script which runs again goes the same way.
    random: OnceLock<u64>,
}

/// What became of a job with the keys that it was given.
#[derive(Debug)]
pub enum Run {
    /// These must be read as well, all of them together; then it is to be run again.
    Need(Wanted),
    /// It is done.
    Done(Done),
    /// Nothing is there to be taken. Run it again when one of these lists changes.
    Block(Block),
    /// It needs Lua, and that may not run here.
    Lua,
    /// The commands that were joined are too much for one transaction: see [`Job::split`].
    Apart,
}

/// A job that is done.
#[derive(Debug)]
pub struct Done {
    /// What the client gets, once the transaction is applied: one reply, or one for each command
    /// that was joined.
    pub replies: Vec<Reply>,
    /// What is to be applied. If there is nothing, the keys must have been read from the current
    /// state for the reply to be right.
    pub transaction: Option<Transaction>,
    /// Whether the replies depend on keys.
    pub reads: bool,
    /// Whether the job is to be run again after that, from [`Job::wanted`] on, for what is left
    /// to do. Then this reply is not sent.
    pub again: bool,
    /// The database that is selected afterwards, if the job could select one.
    pub database: Option<Database>,
    /// What the client gets if somebody stands there whom a key does not show.
    if_busy: Option<Reply>,
}

/// A job that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// For one of these lists.
    pub names: Vec<LockName>,
    /// For so long; none is for ever.
    pub wait_ms: Option<u64>,
}

/// What to do after the core refused a transaction.
#[derive(Debug, PartialEq)]
pub enum Answered {
    /// Read again, from [`Job::wanted`] on, and run again.
    Again,
    /// This is the reply.
    Reply(Reply),
}

impl Job {
    /// One command.
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

    /// Joins the job that the client sent next: both are then one transaction, with a reply to each
    /// command. What must stand alone, or would be too much, is given back.
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

    /// Joined jobs, one by one again.
    pub fn split(self) -> impl Iterator<Item = Self> {
        let database = self.database;
        self.commands.into_iter().map(move |command| Self::one(command, database))
    }

    /// How many replies there will be.
    pub fn replies(&self) -> usize {
        if self.exec { 1 } else { self.commands.len() }
    }

    /// Whether another database may be selected afterwards.
    pub fn may_select(&self) -> bool {
        self.exec
    }

    /// If it may have to wait: for how long; none in it is for ever.
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

    /// Whether it may be done where others wait meanwhile.
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

    /// What can be told to be needed before it is run. Keys that are no names are passed over:
    /// running will say so.
    pub fn wanted(&self) -> Wanted {
        let keys = self.commands.iter().flat_map(|parsed| &parsed.keys);
        let named = keys.filter_map(|key| self.database.name(key).ok());
        let watched = self.watched.iter().map(|(name, _)| name.clone());
        Wanted { names: named.chain(watched).collect(), ..Wanted::default() }
    }

    /// Runs it with these keys.
    pub fn run(&self, seen: &Seen, local: &dyn Local) -> Run {
        self.go(seen, local, true)
    }

    /// The same where Lua may not run.
    pub fn run_without_lua(&self, seen: &Seen, local: &dyn Local) -> Run {
        self.go(seen, local, false)
    }

    fn go(&self, seen: &Seen, local: &dyn Local, may_run_lua: bool) -> Run {
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
            // One of its keys may be refused after others were written. A script keeps what it wrote,
            // as in Redis.
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

    /// Everything that was read, and what is missing.
    fn need(&self, seen: &Seen, missing: &Wanted) -> Run {
        let mut wanted = self.wanted();
        wanted.names.extend(seen.keys.keys().cloned());
        wanted.listing |= seen.listing.is_some();
        wanted.and(missing.clone());
        wanted.rounds = seen.rounds.saturating_add(1);
        if wanted.names.len() > Limits::DEFAULT.keys_read_max {
            return self.fails(Error::refused(&Refusal::BadRequest(Bad::TooManyKeysRead)));
        }
        if wanted.rounds > ROUNDS_MAX {
            return self.fails(Error::fixed(
                "ERR the script reads too many keys one after the other: name them in KEYS",
            ));
        }
        Run::Need(wanted)
    }

    /// More than one transaction can be. Commands that were only joined need not be one.
    fn too_large(&self, error: Error) -> Run {
        if self.replies() > 1 { Run::Apart } else { self.fails(error) }
    }

    /// Nothing is done, and this is why.
    fn fails(&self, error: Error) -> Run {
        Run::Done(self.nothing(Reply::Error(error)))
    }

    fn nothing(&self, reply: Reply) -> Done {
        let replies = vec![reply; self.replies()];
        let (again, database) = (false, None);
        Done { replies, transaction: None, reads: true, again, database, if_busy: None }
    }

    /// To set what is not there is a try: if somebody waits for the end of a lock-delay there, it
    /// is as if it were held.
    fn if_busy(&self) -> Option<Reply> {
        let [Parsed { command: Command::Strings(command), .. }] = self.commands.as_slice() else {
            return None;
        };
        match command {
            _ if self.exec => None,
            Strings::Set { only: Only::IfAbsent, expire, .. } if *expire != Expire::Keep => {
                Some(Reply::Null)
            }
            Strings::SetNx(..) | Strings::MSetNx(_) => Some(Reply::Integer(0)),
            _ => None,
        }
    }
}

impl Done {
    /// What to do after the core refused the transaction.
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

/// What a command costs.
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
