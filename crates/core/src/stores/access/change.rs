//! Changes to users and roles: each is made as a whole, or refused.

use super::{Access, Accounts};
use crate::access::{
    ADMIN_ROLE, AccessBound, AccessChange, AccessRefusal, BearerToken, Right, RoleName, Rule,
    SHARED_USER, User, UserName,
};
use crate::effect::{Answer, Effect};
use crate::limits::Limits;
use crate::lines::StoreAccess;
use crate::refusal::Refusal;
use std::sync::Arc;

impl Access {
    /// Changes users or roles. With `keep_admin` it is refused if users would be left, but none of
    /// them could change users.
    pub(crate) fn change(
        &mut self,
        change: AccessChange,
        keep_admin: bool,
        lines: &impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let mut accounts = (*self.accounts).clone();
        let answer = accounts.make(change.clone(), lines.limits(), lines.wall_ms())?;
        if keep_admin && !accounts.users.is_empty() && !accounts.has_admin() {
            return Err(AccessRefusal::NoAdmin.into());
        }
        accounts.index_tokens();
        self.accounts = Arc::new(accounts);
        effects.push(Effect::AccessChanged(Arc::new(change)));
        Ok(answer)
    }
}

impl From<AccessRefusal> for Refusal {
    fn from(refusal: AccessRefusal) -> Self {
        Self::Access(refusal)
    }
}

impl Accounts {
    fn make(
        &mut self,
        change: AccessChange,
        limits: &Limits,
        wall_ms: u64,
    ) -> Result<Answer, AccessRefusal> {
        match change {
            AccessChange::AddUser { user, password, roles } => {
                if user.as_str() == SHARED_USER {
                    return Err(AccessRefusal::ReservedName(user));
                }
                if self.users.contains_key(&user) {
                    return Err(AccessRefusal::UserExists(user));
                }
                check_room(self.users.len(), limits.users_max, AccessBound::Users)?;
                let roles = self.check_roles(roles, limits)?;
                self.users.insert(user, User { password, roles, tokens: Vec::new() });
            }
            AccessChange::RemoveUser(user) => {
                if self.users.remove(&user).is_none() {
                    return Err(AccessRefusal::NoUser(user));
                }
            }
            AccessChange::SetPassword { user, password } => {
                self.user_mut(user)?.password = password
            }
            AccessChange::SetRoles { user, roles } => {
                let roles = self.check_roles(roles, limits)?;
                self.user_mut(user)?.roles = roles;
            }
            AccessChange::AddToken { user, hash, note } => {
                let id = self.tokens_drawn.saturating_add(1);
                let tokens = &mut self.user_mut(user)?.tokens;
                check_room(tokens.len(), limits.tokens_per_user_max, AccessBound::TokensOfUser)?;
                tokens.push(BearerToken { id, hash, note, wall_ms });
                self.tokens_drawn = id;
                return Ok(Answer::TokenAdded { id });
            }
            AccessChange::RemoveToken { user, id } => {
                let tokens = &mut self.user_mut(user)?.tokens;
                let before = tokens.len();
                tokens.retain(|token| token.id != id);
                if tokens.len() == before {
                    return Err(AccessRefusal::NoToken(id));
                }
            }
            AccessChange::PutRole { role, rules } => {
                check_not_built_in(&role)?;
                check_rules(&rules, limits)?;
                if !self.roles.contains_key(&role) {
                    check_room(self.roles.len(), limits.roles_max, AccessBound::Roles)?;
                }
                self.roles.insert(role, rules);
            }
            AccessChange::RemoveRole(role) => {
                check_not_built_in(&role)?;
                let user = self.users.iter().find(|(_, user)| user.roles.contains(&role));
                if let Some((user, _)) = user {
                    return Err(AccessRefusal::RoleInUse { role, user: user.clone() });
                }
                if self.roles.remove(&role).is_none() {
                    return Err(AccessRefusal::NoRole(role));
                }
            }
        }
        Ok(Answer::AccessChanged)
    }

    fn user_mut(&mut self, user: UserName) -> Result<&mut User, AccessRefusal> {
        match self.users.get_mut(&user) {
            Some(user) => Ok(user),
            None => Err(AccessRefusal::NoUser(user)),
        }
    }

    /// The roles in order, each once.
    fn check_roles(
        &self,
        mut roles: Vec<RoleName>,
        limits: &Limits,
    ) -> Result<Vec<RoleName>, AccessRefusal> {
        roles.sort_unstable();
        roles.dedup();
        let max = limits.roles_per_user_max;
        if roles.len() > max {
            return Err(AccessRefusal::Full { what: AccessBound::RolesOfUser, max });
        }
        let is_known =
            |role: &RoleName| role.as_str() == ADMIN_ROLE || self.roles.contains_key(role);
        match roles.iter().find(|role| !is_known(role)) {
            Some(role) => Err(AccessRefusal::NoRole(role.clone())),
            None => Ok(roles),
        }
    }

    /// Whether some user that can authenticate may change users. One without password and tokens
    /// may still have a certificate.
    fn has_admin(&self) -> bool {
        self.users.keys().any(|user| self.may(user, Right::Admin, b""))
    }
}

fn check_room(len: usize, max: usize, what: AccessBound) -> Result<(), AccessRefusal> {
    if len < max { Ok(()) } else { Err(AccessRefusal::Full { what, max }) }
}

fn check_not_built_in(role: &RoleName) -> Result<(), AccessRefusal> {
    if role.as_str() == ADMIN_ROLE {
        return Err(AccessRefusal::BuiltInRole(role.clone()));
    }
    Ok(())
}

fn check_rules(rules: &[Rule], limits: &Limits) -> Result<(), AccessRefusal> {
    let max = limits.rules_per_role_max;
    if rules.len() > max {
        return Err(AccessRefusal::Full { what: AccessBound::RulesOfRole, max });
    }
    let is_bad = |rule: &Rule| {
        rule.rights.is_empty() || (rule.rights.has(Right::Admin) && rule.prefix.is_some())
    };
    if rules.iter().any(is_bad) { Err(AccessRefusal::BadRule) } else { Ok(()) }
}
