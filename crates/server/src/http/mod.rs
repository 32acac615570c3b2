//! HTTP with JSON: for curl and every language.

mod body;
mod failure;
mod locks;
mod members;
mod sessions;
mod show;
mod views;

use crate::engine::{Answered, Handle, Trouble};
use crate::peers::Membership;
use axum::Router;
use axum::routing::{get, post};
use failure::Failure;
use holdfast_core::{Command, Request};
use holdfast_node::{Node, NodeId};
use std::io;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;

/// How long a request waits for the cluster to take it. An election takes about a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// What every request needs.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) id: NodeId,
    pub(crate) handle: Handle,
    pub(crate) membership: Membership,
}

impl Api {
    /// Puts a command through the log, within the time that a request may take.
    async fn ask(&self, request: Option<Request>, command: Command) -> Result<Answered, Failure> {
        within(self.handle.ask(request, command)).await
    }

    /// Looks at the current state.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        within(self.handle.read(look)).await
    }

    /// Looks at the state as this node has it.
    async fn peek<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        within(self.handle.peek(look)).await
    }
}

async fn within<T>(asked: impl Future<Output = Result<T, Trouble>>) -> Result<T, Failure> {
    match timeout(PATIENCE, asked).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(Failure::no_leader()),
    }
}

/// Serves until the task is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    id: NodeId,
    handle: Handle,
    membership: Membership,
) -> io::Result<()> {
    let api = Api { id, handle, membership };
    axum::serve(listener, router(api)).await
}

fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/grab_lock", post(locks::grab))
        .route("/v1/release_lock", post(locks::release))
        .route("/v1/renew", post(locks::renew))
        .route("/v1/cancel", post(locks::cancel))
        .route("/v1/note", post(locks::note))
        .route("/v1/recovered", post(locks::recovered))
        .route("/v1/outcome", post(locks::outcome))
        .route("/v1/sessions/open", post(sessions::open))
        .route("/v1/sessions/heartbeat", post(sessions::heartbeat))
        .route("/v1/sessions/close", post(sessions::close))
        .route("/v1/lock", get(views::lock))
        .route("/v1/locks", get(views::locks))
        .route("/v1/status", get(members::status))
        .route("/v1/members", get(members::list))
        .route("/v1/members/add", post(members::add))
        .route("/v1/members/promote", post(members::promote))
        .route("/v1/members/remove", post(members::remove))
        .route("/v1/members/transfer", post(members::transfer))
        .route("/v1/backup", get(members::backup))
        .route("/healthz", get(members::healthz))
        .route("/readyz", get(members::readyz))
        .fallback(failure::no_such_path)
        .method_not_allowed_fallback(failure::wrong_method)
        .with_state(api)
}
