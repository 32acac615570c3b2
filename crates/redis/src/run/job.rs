//! One command, or all of a MULTI: run to one reply and one transaction.

use super::{Database, Local, Overlay, Seen, Stop, Wanted, run};
use crate::command::{Command, Parsed, Strings};
use crate::command::{Expire, Only};
use crate::error::Error;
use crate::resp::Reply;
use holdfast_core::{Bad, Limits, LockName, Refusal, Stamp, Transaction};

/// How often a job may find that something else must be read: each time it begins anew.
const ROUNDS_MAX: usize = 256;

/// Commands that are done together.
#[derive(Debug, Clone)]
pub struct Job {
    commands: Vec<Parsed>,
    /// Whether the reply is an array of all replies.
    exec: bool,
    /// Keys whose stamps must be these, else `EXEC` does nothing.
    watched: Vec<(LockName, Stamp)>,
    database: Database,
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
}

/// A job that is done.
#[derive(Debug)]
pub struct Done {
    /// What the client gets, once the transaction is applied.
    pub reply: Reply,
    /// What is to be applied. If there is nothing, the keys must have been read from the current
    /// state for the reply to be right.
    pub transaction: Option<Transaction>,
    /// Whether the job is to be run again after that, from [`Job::wanted`] on, for what is left
    /// to do. Then this reply is not sent.
    pub again: bool,
    /// The database that is selected afterwards.
    pub database: Database,
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
        Self { commands: vec![command], exec: false, watched: Vec::new(), database }
    }

    /// All commands of a MULTI.
    pub fn exec(
        commands: Vec<Parsed>,
        watched: Vec<(LockName, Stamp)>,
        database: Database,
    ) -> Self {
        Self { commands, exec: true, watched, database }
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
        let stands = |(name, stamp): &(LockName, Stamp)| {
            seen.keys.get(name).is_some_and(|(_, now)| now == stamp)
        };
        if !self.watched.iter().all(stands) {
            return Run::Done(self.nothing(Reply::NullArray));
        }
        let mut overlay = Overlay::new(seen, local, self.database);
        let mut replies = Vec::with_capacity(self.commands.len());
        for parsed in &self.commands {
            overlay.may_block = !self.exec;
            match run(&parsed.command, &mut overlay) {
                Ok(reply) => replies.push(reply),
                Err(Stop::Error(error)) => replies.push(Reply::Error(error)),
                Err(Stop::Block { names, wait_ms }) => return Run::Block(Block { names, wait_ms }),
                Err(Stop::Missing) => {}
            }
            if let Some(missing) = overlay.missing() {
                return self.need(seen, missing);
            }
        }
        let (again, database) = (overlay.again, overlay.database);
        let mut transaction = overlay.into_transaction();
        if let Some(transaction) = &mut transaction {
            let others: Vec<_> = self
                .watched
                .iter()
                .filter(|(name, _)| !transaction.seen.iter().any(|(seen, _)| seen == name))
                .cloned()
                .collect();
            transaction.seen.extend(others);
        }
        let reply = if self.exec {
            Reply::Array(replies)
        } else {
            replies.pop().unwrap_or(Reply::Error(Error::SYNTAX))
        };
        Run::Done(Done { reply, transaction, again, database, if_busy: self.if_busy() })
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

    /// Nothing is done, and this is why.
    fn fails(&self, error: Error) -> Run {
        Run::Done(self.nothing(Reply::Error(error)))
    }

    fn nothing(&self, reply: Reply) -> Done {
        let database = self.database;
        Done { reply, transaction: None, again: false, database, if_busy: None }
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
