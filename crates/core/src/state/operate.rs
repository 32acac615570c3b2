//! What only operators may do: it is done, or refused, and either way recorded.

use super::State;
use crate::access::{
    AccessChange, Actor, AuditAction, AuditEntry, Operation, RoleName, Rule, UserName,
};
use crate::command::Revoke;
use crate::effect::{Answer, Effect};
use crate::ids::Token;
use crate::refusal::Refusal;
use crate::text::Label;

impl State {
    pub(super) fn operate(
        &mut self,
        by: Actor,
        operation: Operation,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let Self { lines, access, .. } = self;
        let (entry, result) = match operation {
            Operation::Revoke(revoke) => {
                let entry = of_revoke(&revoke);
                (entry, lines.revoke(revoke, effects))
            }
            Operation::Force { name, token, by, reason } => {
                let detail = about_tickets(token, &reason.to_string());
                let entry = entry(AuditAction::LockBroken, name.as_bytes(), &detail);
                (entry, lines.force(&name, token, by, reason, effects))
            }
            Operation::Access { change, keep_admin } => {
                let entry = of_change(&change);
                (entry, access.change(change, keep_admin, lines, effects))
            }
            Operation::Record(entry) => (entry, Ok(Answer::Recorded)),
        };
        access.record(by, entry, result.as_ref().err(), lines, effects);
        result
    }
}

fn entry(action: AuditAction, subject: &[u8], detail: &str) -> AuditEntry {
    // Longer ones were refused where they came in.
    let text = |bytes| Label::parse(bytes).unwrap_or_else(|_| Label::empty());
    AuditEntry { action, subject: text(subject), detail: text(detail.as_bytes()) }
}

fn about_tickets(token: Option<Token>, reason: &str) -> String {
    match token {
        Some(token) => format!("ticket {token}: {reason}"),
        None => reason.to_owned(),
    }
}

fn of_revoke(revoke: &Revoke) -> AuditEntry {
    let Revoke { name, token, reason, within_ms, force, .. } = revoke;
    let then = if *force { ", then broken" } else { "" };
    let detail = about_tickets(*token, &format!("{reason} (within {within_ms}ms{then})"));
    entry(AuditAction::ReleaseRequested, name.as_bytes(), &detail)
}

fn of_change(change: &AccessChange) -> AuditEntry {
    let of_user =
        |action, user: &UserName, detail: &str| entry(action, user.as_str().as_bytes(), detail);
    match change {
        AccessChange::AddUser { user, roles, .. } => {
            of_user(AuditAction::UserAdded, user, &listed(roles))
        }
        AccessChange::RemoveUser(user) => of_user(AuditAction::UserRemoved, user, ""),
        AccessChange::SetPassword { user, password } => {
            let detail = if password.is_some() { "set" } else { "removed" };
            of_user(AuditAction::PasswordSet, user, detail)
        }
        AccessChange::SetRoles { user, roles } => {
            of_user(AuditAction::RolesSet, user, &listed(roles))
        }
        AccessChange::AddToken { user, note, .. } => {
            of_user(AuditAction::TokenAdded, user, &note.to_string())
        }
        AccessChange::RemoveToken { user, id } => {
            of_user(AuditAction::TokenRemoved, user, &format!("token {id}"))
        }
        AccessChange::PutRole { role, rules } => {
            let rules: Vec<String> = rules.iter().map(Rule::to_string).collect();
            let mut detail = rules.join(" ");
            if detail.len() > Label::BYTES_MAX {
                detail = format!("{} rules", rules.len());
            }
            entry(AuditAction::RoleSet, role.as_str().as_bytes(), &detail)
        }
        AccessChange::RemoveRole(role) => {
            entry(AuditAction::RoleRemoved, role.as_str().as_bytes(), "")
        }
    }
}

fn listed(roles: &[RoleName]) -> String {
    roles.iter().map(RoleName::as_str).collect::<Vec<_>>().join(" ")
}
