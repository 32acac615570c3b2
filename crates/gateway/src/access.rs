//! Who sends a request, and whether they may: the one check of rights, before anything is proposed.
//!
//! A door authenticates its clients and passes a [`Caller`] with each input. The gateway compares
//! what a command needs ([`Caller::check`]) with the rights that the state gives the caller's user.
//! What a door reads, it filters by [`Caller::may`]. A node applies a change of rights at the log
//! position that it has everywhere, so it is in force on each node once that node has applied it.

use crate::Topic;
use holdfast_core::{
    Accounts, Actor, Command, Door, Label, LockName, NodeOp, Operation, Refusal, Right, Rule,
    SHARED_USER, Scope, State, TreeCommand, TreeWrite, UserName,
};
use std::net::IpAddr;
use std::sync::Arc;

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    who: Who,
    address: Option<IpAddr>,
    door: Door,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    /// This node itself.
    Node,
    /// A client that has not been authenticated.
    Anyone,
    User(UserName),
}

impl Caller {
    /// This node itself, which may do everything.
    pub const NODE: Self = Self { who: Who::Node, address: None, door: Door::Native };

    /// A client that has not been authenticated. It may do everything as long as there are no users;
    /// where a password is needed, doors don't serve it in the first place.
    pub fn new(door: Door, address: Option<IpAddr>) -> Self {
        Self { who: Who::Anyone, address, door }
    }

    /// The same client, now known as this user.
    #[must_use]
    pub fn authenticated(self, user: UserName) -> Self {
        Self { who: Who::User(user), ..self }
    }

    /// Who the client has been authenticated as.
    pub fn user(&self) -> Option<&UserName> {
        match &self.who {
            Who::User(user) => Some(user),
            Who::Node | Who::Anyone => None,
        }
    }

    /// Through which door the client came.
    pub fn door(&self) -> Door {
        self.door
    }

    /// Where the client's connection comes from.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    fn has_all_rights(&self, accounts: &Accounts) -> bool {
        match &self.who {
            Who::Node => true,
            Who::Anyone => accounts.is_empty(),
            Who::User(user) => user.as_str() == SHARED_USER,
        }
    }

    /// Whether the caller has a right to a name, or to all names with this prefix.
    pub fn may(&self, state: &State, right: Right, name: &[u8]) -> bool {
        self.may_in(state.accounts(), right, name)
    }

    /// Whether the caller has a right to a name.
    pub fn require(&self, state: &State, right: Right, name: &LockName) -> Result<(), Refusal> {
        if self.may(state, right, name.as_bytes()) {
            return Ok(());
        }
        Err(self.refused(right, Some(name.clone())))
    }

    /// Whether the caller has a right to all names that begin with a prefix; `None` for all names.
    pub fn require_prefix(
        &self,
        state: &State,
        right: Right,
        prefix: Option<&LockName>,
    ) -> Result<(), Refusal> {
        if self.may(state, right, prefix.map_or(&[], LockName::as_bytes)) {
            return Ok(());
        }
        Err(self.refused(right, prefix.cloned()))
    }

    fn refused(&self, right: Right, name: Option<LockName>) -> Refusal {
        Refusal::NoRight { user: self.user().cloned(), right, name }
    }

    /// Whether the caller may give a command. Every command has a row here.
    pub fn check(&self, state: &State, command: &Command) -> Result<(), Refusal> {
        if self.has_all_rights(state.accounts()) {
            return Ok(());
        }
        let to = |right, name: &LockName| self.require(state, right, name);
        match command {
            Command::OpenSession(_)
            | Command::CloseSession(_)
            | Command::Outcome(_)
            // Proven by a secret, or without an effect on any lock.
            | Command::Tree(TreeCommand::Attach(_)) => Ok(()),
            Command::Acquire(acquire) => {
                acquire.names.iter().try_for_each(|name| to(Right::Use, name))
            }
            Command::Upgrade { target, .. }
            | Command::Downgrade { target, .. }
            | Command::Cancel { target, .. }
            | Command::Release { target, .. }
            | Command::Renew { target, .. }
            | Command::Persist { target, .. }
            | Command::Note { target, .. }
            | Command::Recovered { target, .. } => to(Right::Use, &target.name),
            Command::Put { key, .. } | Command::Raise { key, .. } => to(Right::Use, key),
            Command::Transact(transaction) => {
                transaction.seen.iter().try_for_each(|(name, _)| to(Right::Read, name))?;
                transaction.writes.iter().try_for_each(|write| to(Right::Use, &write.name))?;
                let mut channels = transaction.publish.iter().map(|(channel, _)| channel);
                match channels.find(|name| !self.may(state, Right::Use, name.as_bytes())) {
                    Some(channel) => {
                        Err(self.refused(Right::Use, LockName::parse(channel.as_bytes()).ok()))
                    }
                    None => Ok(()),
                }
            }
            Command::Tree(TreeCommand::Write(TreeWrite { ops, .. })) => {
                ops.iter().try_for_each(|op| self.check_node_op(state, op))
            }
            Command::Revoke(revoke) => to(Right::Operate, &revoke.name),
            Command::Force { name, .. } => to(Right::Operate, name),
            Command::Operate { operation, .. } => match &**operation {
                Operation::Revoke(revoke) => to(Right::Operate, &revoke.name),
                Operation::Force { name, .. } => to(Right::Operate, name),
                Operation::Access { .. } | Operation::Record(_) => {
                    self.require_prefix(state, Right::Admin, None)
                }
            },
            // Nobody but nodes gives these.
            Command::Tick(_) | Command::ExpireSession { .. } => {
                Err(self.refused(Right::Admin, None))
            }
        }
    }

    /// The prefixes of the names that the caller may look at, in order, none of which begins with
    /// another; an empty one stands for all names.
    pub fn readable_prefixes(&self, state: &State) -> Vec<Vec<u8>> {
        let accounts = state.accounts();
        if self.has_all_rights(accounts) {
            return vec![Vec::new()];
        }
        let rules = self.user().map(|user| accounts.rules_of(user)).unwrap_or_default();
        let prefix = |rule: Rule| rule.prefix.map_or(Vec::new(), |name| name.as_bytes().to_vec());
        let readable = rules.into_iter().filter(|rule| rule.rights.include(Right::Read));
        let mut prefixes: Vec<Vec<u8>> = readable.map(prefix).collect();
        prefixes.sort_unstable();
        prefixes.dedup_by(|longer, shorter| longer.starts_with(shorter));
        prefixes
    }

    /// Whether the caller may subscribe to all of these: it needs the right to read every name that it
    /// would hear of, or channel.
    pub(crate) fn check_topics<'a>(
        &self,
        state: &State,
        topics: impl IntoIterator<Item = &'a Topic>,
    ) -> Result<(), Refusal> {
        topics.into_iter().try_for_each(|topic| match topic {
            Topic::Locks(Scope::Name(name)) => self.require(state, Right::Read, name),
            Topic::Locks(Scope::Prefix(prefix)) => {
                self.require_prefix(state, Right::Read, prefix.as_ref())
            }
            Topic::Channel(channel) => self.require_bytes(state, channel),
            Topic::Pattern(pattern) => {
                let literal = pattern.iter().position(|byte| b"*?[\\".contains(byte));
                self.require_bytes(
                    state,
                    pattern.get(..literal.unwrap_or(pattern.len())).unwrap_or_default(),
                )
            }
            // Its door looks at the rights of each client.
            Topic::Znodes => Ok(()),
        })
    }

    fn require_bytes(&self, state: &State, name: &[u8]) -> Result<(), Refusal> {
        if self.may(state, Right::Read, name) {
            return Ok(());
        }
        Err(self.refused(Right::Read, LockName::parse(name).ok()))
    }

    fn check_node_op(&self, state: &State, op: &NodeOp) -> Result<(), Refusal> {
        let right = match op {
            NodeOp::Check { .. } => Right::Read,
            NodeOp::Create { .. }
            | NodeOp::Delete { .. }
            | NodeOp::SetData { .. }
            | NodeOp::SetAcl { .. } => Right::Use,
        };
        if self.may_path(state, right, op.path()) {
            return Ok(());
        }
        Err(self.refused(right, LockName::parse(name_of(op.path())).ok()))
    }

    /// Whether the caller has a right to a znode: the right to the name that its path is, without
    /// the leading slash.
    pub fn may_path(&self, state: &State, right: Right, path: &str) -> bool {
        self.may(state, right, name_of(path).as_bytes())
    }

    /// Whether the caller may look at a znode: it has the right to read its name, or the name of
    /// something below it, to which its path leads.
    pub fn may_look(&self, state: &State, path: &str) -> bool {
        let below = match name_of(path) {
            "" => Vec::new(),
            name => [name.as_bytes(), b"/"].concat(),
        };
        self.may_path(state, Right::Read, path)
            || self.readable_prefixes(state).iter().any(|prefix| prefix.starts_with(&below))
    }

    /// Whether the caller may look at everything below a znode.
    pub fn may_look_below(&self, state: &State, path: &str) -> bool {
        let name = match name_of(path) {
            "" => String::new(),
            name => format!("{name}/"),
        };
        self.may(state, Right::Read, name.as_bytes())
    }

    /// Whether the caller has a right to a name, as far as these accounts know.
    pub fn may_in(&self, accounts: &Accounts, right: Right, name: &[u8]) -> bool {
        self.has_all_rights(accounts)
            || self.user().is_some_and(|user| accounts.may(user, right, name))
    }

    /// For the record.
    pub fn actor(&self) -> Actor {
        Actor { user: self.user().cloned(), address: self.address, door: self.door }
    }

    /// Has what operators do recorded, with who did it. `by` names the authenticated user; what the
    /// caller calls itself follows in parentheses.
    pub(crate) fn sign(&self, command: Command) -> Command {
        let operation = match command {
            Command::Revoke(mut revoke) => {
                revoke.by = self.label(revoke.by);
                Operation::Revoke(revoke)
            }
            Command::Force { name, token, by, reason } => {
                Operation::Force { name, token, by: self.label(by), reason }
            }
            command => return command,
        };
        Command::Operate { by: self.actor(), operation: Box::new(operation) }
    }

    fn label(&self, claimed: Label) -> Label {
        match self.user() {
            Some(user) if claimed.as_bytes() != user.as_str().as_bytes() => {
                let both = [user.as_str().as_bytes(), b" (", claimed.as_bytes(), b")"].concat();
                Label::parse(both).or_else(|_| Label::parse(user.as_str())).unwrap_or(claimed)
            }
            _ => claimed,
        }
    }
}

/// The name that stands for a path in rules.
fn name_of(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

/// A change to users or roles, by whoever asks for it.
pub fn access_change(
    caller: &Caller,
    change: holdfast_core::AccessChange,
    keep_admin: bool,
) -> Command {
    let operation = Box::new(Operation::Access { change, keep_admin });
    Command::Operate { by: caller.actor(), operation }
}

/// All users and roles, as seen by those who authenticate clients: kept up to date by the driver.
#[derive(Debug, Default)]
pub struct SharedAccounts(std::sync::RwLock<Arc<Accounts>>);

impl SharedAccounts {
    /// The current ones.
    pub fn get(&self) -> Arc<Accounts> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Replaces them.
    pub fn set(&self, accounts: Arc<Accounts>) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = accounts;
    }
}
