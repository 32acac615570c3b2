//! The socket loop and the API calls, with a file for each kind of call.

pub(in crate::doors) mod acquire;
mod auth;
mod body;
pub(in crate::doors) mod connection;
mod election;
mod listen;
mod locks;
mod members;
mod operator;
mod origin;
mod refuse;
mod register;
pub(in crate::doors) mod request_limit;
mod root;
mod sessions;
mod socket;
mod users;
mod views;
mod watch;

use crate::doors::Context;
use crate::doors::{Opening, grpc};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use origin::Hosts;
use request_limit::RequestLimit;
use std::io;
use std::sync::Arc;

/// Serves until the future is dropped. Without a password, only requests for these hosts and for IP
/// addresses are accepted.
pub(super) async fn serve(opening: Opening) -> io::Result<()> {
    let Opening { listener, limit, context, hosts } = opening;
    let authenticator = context.authenticator.clone();
    let hosts = if authenticator.shared().is_some() { Hosts::Any } else { Hosts::these(hosts) };
    let when_full = request_limit::when_full(get(members::healthz).with_state(context.clone()))
        .layer(from_fn_with_state(hosts.clone(), origin::check));
    let router = router(context)
        .layer(from_fn_with_state(Arc::<RequestLimit>::default(), request_limit::check))
        .layer(from_fn_with_state(authenticator, auth::check))
        .layer(from_fn_with_state(hosts, origin::check));
    listen::serve(listener, router, when_full, limit, listen::IDLE_TIMEOUT).await
}

fn router(context: Context) -> Router {
    Router::new()
        .route("/", get(root::root))
        .route("/openapi.json", get(root::openapi))
        .route("/v1/grab_lock", post(locks::grab))
        .route("/v1/release_lock", post(locks::release))
        .route("/v1/do_external_operation", post(register::put))
        .route("/v1/raise", post(register::raise))
        .route("/v1/register", get(register::get))
        .route("/v1/renew", post(locks::renew))
        .route("/v1/cancel", post(locks::cancel))
        .route("/v1/note", post(locks::note))
        .route("/v1/upgrade", post(locks::upgrade))
        .route("/v1/downgrade", post(locks::downgrade))
        .route("/v1/recovered", post(locks::recovered))
        .route("/v1/outcome", post(locks::outcome))
        .route("/v1/election/campaign", post(election::campaign))
        .route("/v1/election/resign", post(locks::release))
        .route("/v1/election/leader", get(election::leader))
        .route("/v1/election/observe", get(election::observe))
        .route("/v1/sessions/open", post(sessions::open))
        .route("/v1/sessions/heartbeat", post(sessions::heartbeat))
        .route("/v1/sessions/close", post(sessions::close))
        .route("/v1/lock", get(views::lock))
        .route("/v1/locks", get(views::locks))
        .route("/v1/why", get(operator::why))
        .route("/v1/history", get(operator::history))
        .route("/v1/watch", get(watch::watch))
        .route("/v1/sessions", get(operator::sessions))
        .route("/v1/revoke", post(operator::revoke))
        .route("/v1/force", post(operator::force))
        .route("/v1/status", get(members::status))
        .route("/v1/members", get(members::list))
        .route("/v1/members/add", post(members::add))
        .route("/v1/members/promote", post(members::promote))
        .route("/v1/members/remove", post(members::remove))
        .route("/v1/members/transfer", post(members::transfer))
        .route("/v1/backup", get(members::backup))
        .route("/v1/whoami", get(users::whoami))
        .route("/v1/users", get(users::list))
        .route("/v1/users/add", post(users::add))
        .route("/v1/users/remove", post(users::remove))
        .route("/v1/users/set_password", post(users::set_password))
        .route("/v1/users/set_roles", post(users::set_roles))
        .route("/v1/users/add_token", post(users::add_token))
        .route("/v1/users/remove_token", post(users::remove_token))
        .route("/v1/roles", get(users::roles))
        .route("/v1/roles/set", post(users::set_role))
        .route("/v1/roles/remove", post(users::remove_role))
        .route("/v1/audit", get(users::audit))
        .route("/metrics", get(members::metrics))
        .route("/healthz", get(members::healthz))
        .route("/readyz", get(members::readyz))
        .fallback(refuse::no_such_path)
        .method_not_allowed_fallback(refuse::wrong_method)
        .with_state(context.clone())
        .merge(grpc::router(context))
}
