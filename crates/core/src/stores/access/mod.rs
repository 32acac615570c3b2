//! Users and roles, and the audit: the record of who did what.
//!
//! - `change`: changes users and roles, or says why not
//! - `audit`: the bounded ring of records
//!
//! Doors authenticate users against [`Accounts`], of which they share a copy. Rights are checked
//! before anything is proposed, so nothing here is asked when a command is applied.

mod audit;
mod change;

pub(crate) use audit::Audit;

use crate::access::{
    ADMIN_ROLE, AuditRecord, Right, Rights, RoleName, Rule, SHARED_USER, TokenHash, User, UserName,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Users, roles and the audit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// Shared with snapshots and doors; copied when it changes, which is rare.
    accounts: Arc<Accounts>,
    audit: Audit,
}

/// All users and roles.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    users: BTreeMap<UserName, User>,
    /// Without the built-in role.
    roles: BTreeMap<RoleName, Vec<Rule>>,
    /// Whose tokens these are.
    tokens: BTreeMap<TokenHash, UserName>,
    /// The number of the last token.
    tokens_drawn: u64,
}

impl Access {
    /// What a snapshot contained.
    pub(crate) fn load(
        users: BTreeMap<UserName, User>,
        roles: BTreeMap<RoleName, Vec<Rule>>,
        tokens_drawn: u64,
        audit: Audit,
    ) -> Self {
        let mut accounts = Accounts { users, roles, tokens: BTreeMap::new(), tokens_drawn };
        accounts.index_tokens();
        Self { accounts: Arc::new(accounts), audit }
    }

    pub(crate) fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// The newest records first.
    pub(crate) fn records(&self) -> impl Iterator<Item = &AuditRecord> {
        self.audit.iter().rev()
    }
}

impl Accounts {
    /// Whether there are no users: then nobody has to authenticate, unless there is a shared
    /// password.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// One user.
    pub fn user(&self, name: &UserName) -> Option<&User> {
        self.users.get(name)
    }

    /// All users, in order.
    pub fn users(&self) -> impl ExactSizeIterator<Item = (&UserName, &User)> {
        self.users.iter()
    }

    /// All roles in order, without the built-in one.
    pub fn roles(&self) -> impl ExactSizeIterator<Item = (&RoleName, &[Rule])> {
        self.roles.iter().map(|(name, rules)| (name, rules.as_slice()))
    }

    /// Whose token hashes to this.
    pub fn user_of(&self, token: &TokenHash) -> Option<&UserName> {
        self.tokens.get(token)
    }

    /// The number of the last token that was added.
    pub(crate) fn tokens_drawn(&self) -> u64 {
        self.tokens_drawn
    }

    /// Whether a user has a right to a name, or to all names with this prefix. Nobody is
    /// [`SHARED_USER`] by name, but whoever is has all rights.
    pub fn may(&self, user: &UserName, right: Right, name: &[u8]) -> bool {
        if user.as_str() == SHARED_USER {
            return true;
        }
        let roles = self.users.get(user).map_or(&[][..], |user| &user.roles);
        roles.iter().any(|role| {
            let gives = |rules: &Vec<Rule>| rules.iter().any(|rule| rule.gives(right, name));
            role.as_str() == ADMIN_ROLE || self.roles.get(role).is_some_and(gives)
        })
    }

    /// The rules of all roles of a user.
    pub fn rules_of(&self, user: &UserName) -> Vec<Rule> {
        let everything = || vec![Rule { prefix: None, rights: Rights::ALL }];
        if user.as_str() == SHARED_USER {
            return everything();
        }
        let roles = self.users.get(user).map_or(&[][..], |user| &user.roles);
        let rules = roles.iter().flat_map(|role| match role.as_str() {
            ADMIN_ROLE => everything(),
            _ => self.roles.get(role).cloned().unwrap_or_default(),
        });
        rules.collect()
    }

    fn index_tokens(&mut self) {
        let of = |(name, user): (&UserName, &User)| {
            let name = name.clone();
            user.tokens.iter().map(|token| (token.hash, name.clone())).collect::<Vec<_>>()
        };
        self.tokens = self.users.iter().flat_map(of).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::LockName;

    fn rule(prefix: &str, rights: &[Right]) -> Rule {
        let prefix = LockName::parse(prefix).ok();
        Rule { prefix, rights: rights.iter().copied().collect() }
    }

    #[test]
    fn rights_follow_the_longest_and_the_shortest_prefix_alike() {
        let (jobs, ana) = (RoleName::parse("jobs").unwrap(), UserName::parse("ana").unwrap());
        let rules = vec![rule("jobs/", &[Right::Read]), rule("jobs/nightly/", &[Right::Use])];
        let user = User { password: None, roles: vec![jobs.clone()], tokens: Vec::new() };
        let accounts = Accounts {
            users: [(ana.clone(), user)].into(),
            roles: [(jobs, rules)].into(),
            ..Accounts::default()
        };
        for (right, name, allowed) in [
            (Right::Read, "jobs/nightly/1", true),
            (Right::Use, "jobs/nightly/1", true),
            (Right::Use, "jobs/weekly", false),
            (Right::Read, "jobs", false),
            (Right::Operate, "jobs/nightly/1", false),
            (Right::Admin, "", false),
        ] {
            assert_eq!(accounts.may(&ana, right, name.as_bytes()), allowed, "{right} {name}");
        }
        let nobody = UserName::parse("bo").unwrap();
        assert!(!accounts.may(&nobody, Right::Read, b"jobs/1"));
        assert!(accounts.may(&UserName::parse(SHARED_USER).unwrap(), Right::Admin, b""));
    }
}
