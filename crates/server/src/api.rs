//! What HTTP and gRPC ask of the node behind them, within the time that a request may take.

use crate::engine::{Answered, Handle, TIMEOUT, TIMEOUT_OF_THE_LOOP, Undelivered};
use crate::metrics::Metrics;
use crate::peers::Membership;
use holdfast_core::{Command, Refusal, Request, SessionRef};
use holdfast_gateway::ApiError;
use holdfast_gateway::SubmitError;
use holdfast_node::{Node, NodeId};
use std::sync::Arc;
use std::time::Instant;
use tokio::time::timeout;

/// Tickets of one line or session that are shown.
pub(crate) const TICKETS_SHOWN: usize = 100;

/// What every request needs.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) id: NodeId,
    pub(crate) handle: Handle,
    pub(crate) membership: Membership,
    pub(crate) metrics: Arc<Metrics>,
}

impl Api {
    /// Puts a command through the log.
    pub(crate) async fn ask(
        &self,
        request: Option<Request>,
        command: Command,
    ) -> Result<Answered, ApiError> {
        within(self.handle.ask_within_timeout(request, command)).await
    }

    /// Puts a command through the log for a caller whose answer has some way to go yet.
    pub(crate) async fn ask_undelivered(
        &self,
        request: Option<Request>,
        command: Command,
    ) -> Result<(Answered, Option<Undelivered>), ApiError> {
        let until = Some(Instant::now() + TIMEOUT);
        within(self.handle.ask_undelivered(request, command, until)).await
    }

    /// Looks at the current state.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        within(self.handle.read(look)).await
    }

    /// Looks at the state as this node has it.
    pub(crate) async fn peek<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        within(self.handle.peek(look)).await
    }

    /// Why a session is not alive, as its heartbeat was told: whoever shows another secret is not
    /// its owner, and learns nothing else about it.
    pub(crate) async fn not_alive(&self, session: SessionRef) -> Result<ApiError, ApiError> {
        let owner = self.read(move |node| node.state().session_owner(&session)).await?;
        Ok(match owner {
            Some(false) => Refusal::NotOwner.into(),
            Some(true) | None => Refusal::NoSession(session.id).into(),
        })
    }

    /// One or the other.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        stale: bool,
        look: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        if stale { self.peek(look).await } else { self.read(look).await }
    }
}

/// The loop answers in time by itself, and knows whether something was done; unless it hangs.
pub(crate) async fn within<T>(
    asked: impl Future<Output = Result<T, SubmitError>>,
) -> Result<T, ApiError> {
    let answered = timeout(TIMEOUT_OF_THE_LOOP, asked).await;
    Ok(answered.unwrap_or(Err(SubmitError::Unknown))?)
}
