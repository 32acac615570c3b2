//! Users, roles, bearer tokens, and the record of who did what.

use super::body::JsonBody;
use crate::authentication::{hash_password, new_token};
use crate::doors::Context;
use crate::doors::http::codec::query::ParsedQuery;
use crate::doors::http::codec::text;
use crate::doors::http::translate::error_response::HttpError;
use crate::doors::http::translate::fields::{self, WholeNumber};
use crate::doors::http::translate::show;
use axum::Json;
use holdfast_core::{
    AccessChange, AccessRefusal, Answer, AuditRecord, Label, Limits, Refusal, Right, Rights,
    RoleName, Rule, UserName,
};
use holdfast_gateway::{ApiError, access_change};
use holdfast_node::Node;
use serde::Deserialize;
use serde_json::{Value, json};

/// Rules of one role.
const RULES_MAX: usize = Limits::DEFAULT.rules_per_role_max;

fn user_name(text: &str) -> Result<UserName, ApiError> {
    UserName::parse(text).map_err(|bad| ApiError::bad(bad.to_string(), "choose another name"))
}

fn role_name(text: &str) -> Result<RoleName, ApiError> {
    RoleName::parse(text).map_err(|bad| ApiError::bad(bad.to_string(), "choose another name"))
}

fn role_names(names: &[String]) -> Result<Vec<RoleName>, ApiError> {
    names.iter().map(|name| role_name(name)).collect()
}

async fn change(context: &Context, change: AccessChange) -> Result<Answer, ApiError> {
    // With a shared password, somebody can always change users.
    let keep_admin = context.authenticator.shared().is_none();
    let command = access_change(context.engine.caller(), change, keep_admin);
    Ok(context.engine.submit(None, command).await??)
}

/// The caller's own name and rights.
pub(crate) async fn whoami(context: Context) -> Result<Json<Value>, HttpError> {
    let caller = context.engine.caller().clone();
    let look = move |node: &Node| {
        let rules = caller.user().map(|user| node.state().accounts().rules_of(user));
        let user = caller.user().map(UserName::as_str);
        json!({ "user": user, "rules": rules.map(|rules| shown_rules(&rules)) })
    };
    Ok(Json(context.engine.peek(look).await?))
}

/// All users, without their secrets.
pub(crate) async fn list(context: Context) -> Result<Json<Value>, HttpError> {
    context.engine.require_admin().await?;
    let look = |node: &Node| {
        let users = node.state().accounts().users().map(|(name, user)| {
            let roles: Vec<&str> = user.roles.iter().map(RoleName::as_str).collect();
            let tokens = user.tokens.iter().map(|token| {
                let note = show::text(token.note.as_bytes());
                json!({ "id": token.id, "note": note, "added_wall_ms": token.wall_ms })
            });
            json!({
                "name": name.as_str(),
                "roles": roles,
                "has_password": user.password.is_some(),
                "tokens": tokens.collect::<Vec<_>>(),
            })
        });
        json!({ "users": users.collect::<Vec<_>>() })
    };
    Ok(Json(context.engine.read(look).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewUser {
    name: String,
    password: Option<String>,
    #[serde(default)]
    roles: Vec<String>,
}

pub(crate) async fn add(
    context: Context,
    JsonBody(sent): JsonBody<NewUser>,
) -> Result<Json<Value>, HttpError> {
    let (user, roles) = (user_name(&sent.name)?, role_names(&sent.roles)?);
    // A hash costs time that only an administrator may take.
    context.engine.require_admin().await?;
    let password = match sent.password {
        Some(password) => Some(hash_password(password.into_bytes()).await?),
        None => None,
    };
    change(&context, AccessChange::AddUser { user, password, roles }).await?;
    Ok(Json(json!({ "added": sent.name })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NameBody {
    name: String,
}

pub(crate) async fn remove(
    context: Context,
    JsonBody(sent): JsonBody<NameBody>,
) -> Result<Json<Value>, HttpError> {
    change(&context, AccessChange::RemoveUser(user_name(&sent.name)?)).await?;
    Ok(Json(json!({ "removed": sent.name })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PasswordBody {
    name: String,
    /// `None` removes the password.
    password: Option<String>,
}

pub(crate) async fn set_password(
    context: Context,
    JsonBody(sent): JsonBody<PasswordBody>,
) -> Result<Json<Value>, HttpError> {
    let user = user_name(&sent.name)?;
    context.engine.require_admin().await?;
    let password = match sent.password {
        Some(password) => Some(hash_password(password.into_bytes()).await?),
        None => None,
    };
    change(&context, AccessChange::SetPassword { user, password }).await?;
    Ok(Json(json!({ "changed": sent.name })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RolesBody {
    name: String,
    roles: Vec<String>,
}

pub(crate) async fn set_roles(
    context: Context,
    JsonBody(sent): JsonBody<RolesBody>,
) -> Result<Json<Value>, HttpError> {
    let (user, roles) = (user_name(&sent.name)?, role_names(&sent.roles)?);
    change(&context, AccessChange::SetRoles { user, roles }).await?;
    Ok(Json(json!({ "changed": sent.name })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    name: String,
    note: Option<String>,
}

/// Adds a bearer token. This is the only time that it is shown.
pub(crate) async fn add_token(
    context: Context,
    JsonBody(sent): JsonBody<NewToken>,
) -> Result<Json<Value>, HttpError> {
    let user = user_name(&sent.name)?;
    let note = Label::parse(text::read(sent.note.as_deref().unwrap_or_default()));
    let note = note.map_err(|bad| ApiError::bad(bad.to_string(), "use a shorter note"))?;
    let (token, hash) = new_token();
    match change(&context, AccessChange::AddToken { user, hash, note }).await? {
        Answer::TokenAdded { id } => Ok(Json(json!({ "id": id, "token": token }))),
        _ => Err(ApiError::unexpected().into()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenBody {
    name: String,
    id: WholeNumber,
}

pub(crate) async fn remove_token(
    context: Context,
    JsonBody(sent): JsonBody<TokenBody>,
) -> Result<Json<Value>, HttpError> {
    let user = user_name(&sent.name)?;
    change(&context, AccessChange::RemoveToken { user, id: sent.id.0 }).await?;
    Ok(Json(json!({ "removed": sent.id.0 })))
}

fn shown_rules(rules: &[Rule]) -> Vec<Value> {
    let shown = rules.iter().map(|rule| {
        let prefix = rule.prefix.as_ref().map(|prefix| show::text(prefix.as_bytes()));
        let rights: Vec<&str> = rule.rights.iter().map(Right::as_str).collect();
        json!({ "prefix": prefix.unwrap_or_default(), "rights": rights })
    });
    shown.collect()
}

/// All roles and their rules, without the built-in role `admin`.
pub(crate) async fn roles(context: Context) -> Result<Json<Value>, HttpError> {
    context.engine.require_admin().await?;
    let look = |node: &Node| {
        let roles = node.state().accounts().roles();
        let roles = roles
            .map(|(name, rules)| json!({ "name": name.as_str(), "rules": shown_rules(rules) }));
        json!({ "roles": roles.collect::<Vec<_>>() })
    };
    Ok(Json(context.engine.read(look).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleField {
    /// Empty for all names.
    #[serde(default)]
    prefix: String,
    rights: Vec<String>,
}

impl RuleField {
    fn parse(&self) -> Result<Rule, ApiError> {
        let right = |text: &String| {
            Right::parse(text).ok_or_else(|| {
                let hint = "the rights are use, read, operate and admin";
                ApiError::bad(format!("there is no right {text:?}"), hint)
            })
        };
        if self.rights.len() > Right::ALL.len() {
            return Err(ApiError::bad("a right is named twice", "name each right once"));
        }
        let rights = self.rights.iter().map(right).collect::<Result<Rights, _>>()?;
        let prefix = if self.prefix.is_empty() { None } else { Some(fields::name(&self.prefix)?) };
        if rights.is_empty() || (rights.has(Right::Admin) && prefix.is_some()) {
            return Err(Refusal::Access(AccessRefusal::BadRule).into());
        }
        Ok(Rule { prefix, rights })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoleBody {
    name: String,
    rules: Vec<RuleField>,
}

/// Adds a role, or replaces its rules.
pub(crate) async fn set_role(
    context: Context,
    JsonBody(sent): JsonBody<RoleBody>,
) -> Result<Json<Value>, HttpError> {
    if sent.rules.len() > RULES_MAX {
        let message = format!("a role has at most {RULES_MAX} rules");
        return Err(ApiError::bad(message, "split it into several roles").into());
    }
    let rules = sent.rules.iter().map(RuleField::parse).collect::<Result<_, _>>()?;
    change(&context, AccessChange::PutRole { role: role_name(&sent.name)?, rules }).await?;
    Ok(Json(json!({ "set": sent.name })))
}

pub(crate) async fn remove_role(
    context: Context,
    JsonBody(sent): JsonBody<NameBody>,
) -> Result<Json<Value>, HttpError> {
    change(&context, AccessChange::RemoveRole(role_name(&sent.name)?)).await?;
    Ok(Json(json!({ "removed": sent.name })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    limit: Option<WholeNumber>,
    /// Only records with lower numbers: the next page.
    before: Option<WholeNumber>,
}

/// Who did what, newest first, as far as it is remembered.
pub(crate) async fn audit(
    context: Context,
    ParsedQuery(asked): ParsedQuery<AuditQuery>,
) -> Result<Json<Value>, HttpError> {
    context.engine.require_admin().await?;
    let limit = fields::limit(asked.limit)?;
    let before = asked.before.map_or(u64::MAX, |before| before.0);
    let look = move |node: &Node| {
        let records = node.state().audit().filter(|record| record.number < before);
        let shown: Vec<Value> = records.take(limit).map(shown_record).collect();
        json!({ "records": shown })
    };
    Ok(Json(context.engine.read(look).await?))
}

fn shown_record(record: &AuditRecord) -> Value {
    let AuditRecord { number, at_ms, wall_ms, by, entry, refused } = record;
    json!({
        "number": number,
        "at_ms": at_ms,
        "wall_ms": wall_ms,
        "user": by.user.as_ref().map(UserName::as_str),
        "address": by.address.map(|address| address.to_string()),
        "door": by.door.to_string().to_lowercase(),
        "action": entry.action.as_str(),
        "subject": show::text(entry.subject.as_bytes()),
        "detail": show::text(entry.detail.as_bytes()),
        "refused": refused.as_ref().map(|why| show::text(why.as_bytes())),
    })
}
