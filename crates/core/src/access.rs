//! Users, roles and rights, and the record of who did what.
//!
//! A user has roles, and a role has rules: each gives rights to all names that begin with a prefix.
//! The core stores all of this, and records what operators do ([`AuditRecord`]); who sent a request,
//! and whether its user may make it, is checked before anything is proposed.

use crate::command::{Door, Revoke};
use crate::ids::Token;
use crate::text::{Label, LockName, Reason};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Why a text is not the name of a user or a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAccountName {
    what: &'static str,
}

impl fmt::Display for BadAccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a {} has 1 to {ACCOUNT_NAME_BYTES_MAX} letters, digits, dots, underscores, dashes or @, \
             and starts with a letter or a digit",
            self.what
        )
    }
}

impl std::error::Error for BadAccountName {}

/// As long as the common name of a certificate may be.
const ACCOUNT_NAME_BYTES_MAX: usize = 64;

fn is_account_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    text.len() <= ACCOUNT_NAME_BYTES_MAX
        && text.bytes().all(allowed)
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

macro_rules! account_name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Accepts up to 64 letters, digits, dots, underscores, dashes and `@`.
            pub fn parse(text: &str) -> Result<Self, BadAccountName> {
                if is_account_name(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(BadAccountName { what: $what })
                }
            }

            /// The name as given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

account_name!(
    /// The name of a user.
    UserName, "user name"
);
account_name!(
    /// The name of a role.
    RoleName, "role name"
);

/// Whoever knows the password that all nodes are started with is this user. It is not stored, and
/// has all rights.
pub const SHARED_USER: &str = "holdfast";

/// This role always exists, and has all rights.
pub const ADMIN_ROLE: &str = "admin";

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Right {
    /// Take locks, and do what their owner may do.
    Use,
    /// Look at locks, and watch them.
    Read,
    /// Ask holders to release, and break locks.
    Operate,
    /// Change members, users and roles; take backups.
    Admin,
}

impl Right {
    /// All rights, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Use, Self::Read, Self::Operate, Self::Admin];

    /// As it is written in rules and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// The right with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.as_str() == text)
    }

    fn bit(self) -> u8 {
        match self {
            Self::Use => 1,
            Self::Read => 2,
            Self::Operate => 4,
            Self::Admin => 8,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of rights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights(u8);

impl Rights {
    /// Every right.
    pub const ALL: Self = Self(15);

    /// Whether a right is in the set.
    pub fn has(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// Whether it gives a right: who may use locks or operate on them may also look at them.
    pub fn include(self, right: Right) -> bool {
        let reads = right == Right::Read && (self.has(Right::Use) || self.has(Right::Operate));
        self.has(right) || reads
    }

    /// Whether there is no right in it.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The rights in the set.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<T: IntoIterator<Item = Right>>(rights: T) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.bit()))
    }
}

/// Gives rights to all names that begin with a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// `None` for all names.
    pub prefix: Option<LockName>,
    /// What may be done with them. `admin` is about the whole cluster, and needs a rule for all
    /// names.
    pub rights: Rights,
}

impl Rule {
    /// Whether it gives a right to a name, or to all names with this prefix.
    pub(crate) fn gives(&self, right: Right, name: &[u8]) -> bool {
        let prefix = self.prefix.as_ref().map_or(&[][..], LockName::as_bytes);
        self.rights.include(right) && name.starts_with(prefix)
    }
}

/// As it is typed: `use,read:jobs/`, or `read:` for all names.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, right) in self.rights.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            right.fmt(f)?;
        }
        f.write_str(":")?;
        self.prefix.as_ref().map_or(Ok(()), |prefix| prefix.fmt(f))
    }
}

/// A hashed password, in the PHC string format. Its `Debug` output does not reveal it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordHash(Arc<str>);

impl PasswordHash {
    /// Longer than any hash with sensible parameters.
    pub const BYTES_MAX: usize = 256;

    /// Accepts a PHC string; `None` if it is not one, or too long.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() <= Self::BYTES_MAX && text.starts_with('$') && text.is_ascii();
        fits.then(|| Self(text.into()))
    }

    /// The PHC string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// The SHA-256 hash of a bearer token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenHash(pub [u8; 32]);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

/// A bearer token of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BearerToken {
    /// Identifies it among all tokens of the cluster.
    pub id: u64,
    /// What it must hash to.
    pub hash: TokenHash,
    /// What it is for.
    pub note: Label,
    /// The leader's wall clock when it was added, in milliseconds.
    pub wall_ms: u64,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// `None` if it can't log in with a password.
    pub password: Option<PasswordHash>,
    /// Its roles, in order.
    pub roles: Vec<RoleName>,
    /// Its bearer tokens, oldest first.
    pub tokens: Vec<BearerToken>,
}

/// A change to users or roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessChange {
    /// Adds a user.
    AddUser {
        /// Its name.
        user: UserName,
        /// Its password, if it has one.
        password: Option<PasswordHash>,
        /// Its roles, which must exist.
        roles: Vec<RoleName>,
    },
    /// Removes a user with its tokens.
    RemoveUser(UserName),
    /// Replaces a user's password.
    SetPassword {
        /// Whose.
        user: UserName,
        /// `None` removes it: only tokens and certificates are left.
        password: Option<PasswordHash>,
    },
    /// Replaces a user's roles.
    SetRoles {
        /// Whose.
        user: UserName,
        /// Which must exist.
        roles: Vec<RoleName>,
    },
    /// Adds a bearer token.
    AddToken {
        /// Whose.
        user: UserName,
        /// What it hashes to.
        hash: TokenHash,
        /// What it is for.
        note: Label,
    },
    /// Removes a bearer token.
    RemoveToken {
        /// Whose.
        user: UserName,
        /// Which one.
        id: u64,
    },
    /// Adds a role, or replaces its rules.
    PutRole {
        /// Which one.
        role: RoleName,
        /// All its rules.
        rules: Vec<Rule>,
    },
    /// Removes a role that no user has.
    RemoveRole(RoleName),
}

/// Why users or roles were not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessRefusal {
    /// There is a user of this name already.
    UserExists(UserName),
    /// The name is that of the user with the shared password.
    ReservedName(UserName),
    /// There is no such user.
    NoUser(UserName),
    /// There is no such role.
    NoRole(RoleName),
    /// The user has no such token.
    NoToken(u64),
    /// The built-in role can't be changed.
    BuiltInRole(RoleName),
    /// A user still has the role.
    RoleInUse {
        /// Which role.
        role: RoleName,
        /// The first of the users that have it.
        user: UserName,
    },
    /// `admin` in a rule with a prefix, or a rule without rights.
    BadRule,
    /// Nobody would be left who may change users.
    NoAdmin,
    /// A limit is reached.
    Full {
        /// What there are too many of.
        what: AccessBound,
        /// How many there may be.
        max: usize,
    },
}

/// What users and roles have limited numbers of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessBound {
    /// Users.
    Users,
    /// Roles.
    Roles,
    /// Roles of one user.
    RolesOfUser,
    /// Tokens of one user.
    TokensOfUser,
    /// Rules of one role.
    RulesOfRole,
}

/// Who did something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The user that was authenticated; `None` where nobody has to be.
    pub user: Option<UserName>,
    /// Where the connection came from.
    pub address: Option<IpAddr>,
    /// Through which door.
    pub door: Door,
}

/// Something that is recorded together with who did it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Asks the holders to release by a deadline.
    Revoke(Revoke),
    /// Ends the holders without their consent.
    Force {
        /// Which lock.
        name: LockName,
        /// Which ticket, held or waiting; `None` for all holders.
        token: Option<Token>,
        /// Who does it.
        by: Label,
        /// Why.
        reason: Reason,
    },
    /// Changes users or roles.
    Access {
        /// What to change.
        change: AccessChange,
        /// Whether to refuse it if nobody would be left who may change users.
        keep_admin: bool,
    },
    /// Only records what happened at one node.
    Record(AuditEntry),
}

/// What was done, or tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// What kind of thing.
    pub action: AuditAction,
    /// To which lock, user, role or member.
    pub subject: Label,
    /// Further details, for people to read.
    pub detail: Label,
}

macro_rules! audit_actions {
    ($($(#[doc = $doc:literal])+ $action:ident = $text:literal;)+) => {
        /// The kinds of things that are recorded.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum AuditAction {
            $($(#[doc = $doc])+ $action,)+
        }

        impl AuditAction {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$action),+];

            /// As it is written in JSON and logs.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$action => $text,)+
                }
            }
        }
    };
}

audit_actions! {
    /// A lock was broken.
    LockBroken = "lock_broken";
    /// Holders were asked to release.
    ReleaseRequested = "release_requested";
    /// A user was added.
    UserAdded = "user_added";
    /// A user was removed.
    UserRemoved = "user_removed";
    /// A user's password was set or removed.
    PasswordSet = "password_set";
    /// A user's roles were set.
    RolesSet = "roles_set";
    /// A bearer token was added.
    TokenAdded = "token_added";
    /// A bearer token was removed.
    TokenRemoved = "token_removed";
    /// A role was added, or its rules replaced.
    RoleSet = "role_set";
    /// A role was removed.
    RoleRemoved = "role_removed";
    /// A member was added, promoted or removed.
    MembersChanged = "members_changed";
    /// A backup was taken.
    BackupTaken = "backup_taken";
    /// Somebody could not be authenticated.
    LoginFailed = "login_failed";
    /// A user asked for something that it has no right to.
    RightRefused = "right_refused";
}

impl fmt::Display for AuditAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who did what, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Records are numbered from 0.
    pub number: u64,
    /// Logical time.
    pub at_ms: u64,
    /// The leader's wall clock, for display.
    pub wall_ms: u64,
    /// Who.
    pub by: Actor,
    /// What.
    pub entry: AuditEntry,
    /// Why it was not done; `None` if it was.
    pub refused: Option<Label>,
}
