//! The recipe of kazoo's `WriteLock` and `ReadLock`: an ephemeral sequential child in the lock's
//! directory. The lowest holds the lock, and each of the others watches the one before it.

use super::client::Context;
use super::{create, delete};
use crate::checks::{DOOR, SUFFIX_LEN};
use holdfast_core::{LockName, Mode, NodeKind, Token};
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::{Reply, ReplyBody, Request, WatchEvent};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It wants nothing until then.
    Idle { until_us: u64 },
    /// To create the directory.
    Directory,
    /// To create the child.
    Create,
    /// The reply to that was lost: to look whether it is there.
    Find,
    /// It is there: to see its token.
    Stat,
    /// To look who is in line.
    Look,
    /// To watch the one before it.
    Watch,
    /// That is watched.
    Wait,
    /// It holds the lock; whether its own child is watched, in case that an operator breaks the lock.
    Hold { until_us: u64, watched: bool },
    /// To delete the child.
    Delete,
}

pub(crate) struct Lock {
    phase: Phase,
    /// Whether the request of the phase is on its way.
    asked: bool,
    name: Option<LockName>,
    directory: String,
    /// The name of its child without the number, unlike any other.
    prefix: String,
    mode: Mode,
    child: Option<String>,
    token: Option<Token>,
    predecessor: String,
    gives_up_us: u64,
}

impl Lock {
    pub(super) fn new(now_us: u64) -> Self {
        Self {
            phase: Phase::Idle { until_us: now_us + 200_000 },
            asked: false,
            name: None,
            directory: String::new(),
            prefix: String::new(),
            mode: Mode::Exclusive,
            child: None,
            token: None,
            predecessor: String::new(),
            gives_up_us: 0,
        }
    }

    /// The lock that it holds.
    pub(super) fn held(&self) -> Option<(LockName, Token, Mode)> {
        let held = matches!(self.phase, Phase::Hold { .. });
        Some((self.name.clone().filter(|_| held)?, self.token?, self.mode))
    }

    /// The ticket that it has, or none; nothing if it does not know itself.
    pub(super) fn ticket(&self) -> Option<Option<Token>> {
        match self.phase {
            Phase::Idle { .. } | Phase::Directory => Some(None),
            Phase::Look | Phase::Watch | Phase::Wait | Phase::Hold { .. } => Some(self.token),
            Phase::Create | Phase::Find | Phase::Stat | Phase::Delete => None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle { .. })
    }

    pub(super) fn next_us(&self) -> u64 {
        match self.phase {
            Phase::Idle { until_us } | Phase::Hold { until_us, .. } => until_us,
            Phase::Wait => self.gives_up_us,
            _ => u64::MAX,
        }
    }

    fn rest(&mut self, context: &mut Context<'_>) {
        let until_us = context.now_us + context.rng.range(20_000, 2_500_000);
        (self.child, self.token) = (None, None);
        self.phase = Phase::Idle { until_us };
    }

    /// What it sends now.
    pub(super) fn request(&mut self, tag: String, context: &mut Context<'_>) -> Option<Request> {
        if self.asked {
            return None;
        }
        let now_us = context.now_us;
        match &mut self.phase {
            Phase::Idle { until_us } if *until_us <= now_us => {
                if context.rests {
                    *until_us = now_us + 1_000_000;
                    return None;
                }
                self.begin(&tag, context);
            }
            Phase::Wait if self.gives_up_us <= now_us => self.phase = Phase::Delete,
            Phase::Hold { until_us, .. } if *until_us <= now_us => self.phase = Phase::Delete,
            _ => {}
        }
        let child = || self.child.clone().unwrap_or_default();
        let request = match self.phase {
            Phase::Idle { .. } | Phase::Wait | Phase::Hold { watched: true, .. } => return None,
            Phase::Directory => create(&self.directory, "", NodeKind::Persistent, false),
            Phase::Create => {
                let path = format!("{}/{}", self.directory, self.prefix);
                create(&path, &tag, NodeKind::Ephemeral, true)
            }
            Phase::Find | Phase::Look => {
                Request::GetChildren { path: self.directory.clone(), watch: false, stat: false }
            }
            Phase::Stat => Request::Exists { path: child(), watch: false },
            Phase::Watch => Request::GetData { path: self.predecessor.clone(), watch: true },
            Phase::Hold { watched: false, .. } => Request::Exists { path: child(), watch: true },
            Phase::Delete => delete(&child()),
        };
        self.asked = true;
        Some(request)
    }

    fn begin(&mut self, tag: &str, context: &mut Context<'_>) {
        let rng = &mut *context.rng;
        let family = if rng.per_mille(700) { DOOR } else { "lock-" };
        let name = format!("{family}{}", rng.range(0, 3));
        let shared = rng.per_mille(250);
        self.mode = if shared { Mode::Shared } else { Mode::Exclusive };
        let marker = if shared { "__rlock__" } else { "__lock__" };
        self.prefix = format!("{}{marker}", tag.replace('.', "-"));
        self.directory = format!("/{name}");
        self.name = LockName::parse(name).ok();
        self.gives_up_us = context.now_us + rng.range(200_000, 15_000_000);
        self.phase = Phase::Directory;
    }

    /// A reply came to what it sent; returns the token if it was told that.
    pub(super) fn replied(&mut self, reply: &Reply, context: &mut Context<'_>) -> Option<Token> {
        self.asked = false;
        match (self.phase, &reply.result) {
            (Phase::Directory, Ok(_) | Err(Code::NodeExists)) => self.phase = Phase::Create,
            (Phase::Create, Ok(ReplyBody::PathStat(path, stat))) => {
                (self.child, self.token) = (Some(path.clone()), Some(Token(stat.czxid)));
                self.phase = Phase::Look;
                return self.token;
            }
            (Phase::Find, Ok(ReplyBody::Texts(names))) => {
                let own = names.iter().find(|name| name.starts_with(&self.prefix));
                self.child = own.map(|name| format!("{}/{name}", self.directory));
                self.phase = if own.is_some() { Phase::Stat } else { Phase::Create };
            }
            (Phase::Stat, Ok(ReplyBody::Stat(stat))) => {
                self.token = Some(Token(stat.czxid));
                self.phase = Phase::Look;
            }
            (Phase::Look, Ok(ReplyBody::Texts(names))) => self.look(names, context),
            (Phase::Watch, Ok(_)) => self.phase = Phase::Wait,
            (Phase::Watch, Err(Code::NoNode)) => self.phase = Phase::Look,
            (Phase::Hold { until_us, .. }, Ok(_)) => {
                self.phase = Phase::Hold { until_us, watched: true };
            }
            // The lock was broken, refused or let go.
            _ => self.rest(context),
        }
        None
    }

    fn look(&mut self, names: &[String], context: &mut Context<'_>) {
        let number =
            |name: &str| name.get(name.len().saturating_sub(SUFFIX_LEN)..).map(String::from);
        let own = self.child.as_deref().and_then(|child| child.rsplit('/').next());
        if !names.iter().any(|name| Some(name.as_str()) == own) {
            return self.rest(context);
        }
        let before = |name: &&String| {
            let conflicts = name.contains("__lock__")
                || self.mode == Mode::Exclusive && name.contains("__rlock__");
            conflicts && number(name) < own.and_then(number)
        };
        match names.iter().filter(before).max_by_key(|name| number(name)) {
            Some(name) => {
                self.predecessor = format!("{}/{name}", self.directory);
                self.phase = Phase::Watch;
            }
            None => {
                let most_us = if context.rng.per_mille(100) { 9_000_000 } else { 1_500_000 };
                let until_us = context.now_us + context.rng.range(1_000, most_us);
                self.phase = Phase::Hold { until_us, watched: false };
            }
        }
    }

    /// Something that its client watches has changed; returns whether an exclusive wait goes on.
    pub(super) fn event(&mut self, event: &WatchEvent) -> bool {
        match self.phase {
            Phase::Wait if event.path == self.predecessor => {
                self.phase = Phase::Look;
                return self.mode == Mode::Exclusive;
            }
            // Its lock was broken; it looks again, and finds that its child is gone.
            Phase::Hold { .. } if Some(&event.path) == self.child.as_ref() => {
                self.phase = Phase::Look;
            }
            _ => {}
        }
        false
    }

    /// The replies to what was sent are lost.
    pub(super) fn disconnected(&mut self) {
        if !std::mem::take(&mut self.asked) {
            return;
        }
        self.phase = match self.phase {
            Phase::Create => Phase::Find,
            Phase::Watch => Phase::Look,
            phase => phase,
        };
    }
}
