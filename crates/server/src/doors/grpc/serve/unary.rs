//! Unary calls, which need no session.

use super::{Calls, session};
use crate::doors::grpc::{OrStatus, status};
use crate::doors::http::serve::acquire;
use crate::doors::http::serve::connection::{Connection, CutUnlessRead};
use crate::doors::{TICKETS_SHOWN, reads};
use crate::engine::Subscriber;
use crate::random;
use holdfast_core::{Answer, Command, Refusal, RequestRef, Right, Secret};
use holdfast_gateway::{ApiError, request};
use holdfast_grpc::translate;
use holdfast_node::Node;
use holdfast_proto::v1::holdfast_server::Holdfast;
use holdfast_proto::v1::{self as proto, watch_event};
use std::pin::Pin;
use std::task::{self, Poll, ready};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// Events queued for a slow watcher.
const EVENTS_MAX: usize = 1_024;

type UnaryResult<T> = Result<Response<T>, Status>;

impl Calls {
    /// Puts a command through the log and returns its answer.
    async fn put_through(&self, command: Command) -> Result<Answer, ApiError> {
        Ok(self.context.engine.submit(None, command).await??)
    }

    async fn done(&self, command: Command, token: u64) -> UnaryResult<proto::Done> {
        self.put_through(command).await.or_status()?;
        Ok(Response::new(proto::Done { token }))
    }

    async fn through_fence(&self, command: Command) -> UnaryResult<proto::Fence> {
        match self.put_through(command).await.or_status()? {
            Answer::Passed(fence) => Ok(Response::new(translate::fence(&fence))),
            _ => Err(status(ApiError::unexpected())),
        }
    }

    async fn count(&self, command: Command) -> UnaryResult<proto::Count> {
        match self.put_through(command).await.or_status()? {
            Answer::RevocationAsked(count) | Answer::Forced(count) => {
                Ok(Response::new(proto::Count { count: count as u64 }))
            }
            _ => Err(status(ApiError::unexpected())),
        }
    }
}

fn token_of(own: &Option<proto::TicketRef>) -> u64 {
    own.as_ref().map_or(0, |own| own.token)
}

#[tonic::async_trait]
impl Holdfast for Calls {
    type SessionStream = session::Outgoing;
    type WatchStream = Pin<Box<dyn Stream<Item = Result<proto::WatchEvent, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<proto::ToServer>>,
    ) -> UnaryResult<Self::SessionStream> {
        session::serve(self, request).await
    }

    async fn acquire(
        &self,
        request: Request<proto::AcquireAlone>,
    ) -> UnaryResult<proto::TicketStatus> {
        let connection = connection(&request);
        let sent = request.into_inner();
        let acquire = sent.acquire.unwrap_or_default();
        let secret = Secret(random::bytes());
        let acquired = translate::acquire(acquire, sent.request_id, None, secret);
        let (request, acquire) = acquired.or_status()?;
        let command = Command::Acquire(acquire);
        let status =
            acquire::take(&self.context, &connection, request, command).await.or_status()?;
        Ok(Response::new(translate::ticket_status(&status)))
    }

    async fn release(&self, request: Request<proto::TicketRef>) -> UnaryResult<proto::Done> {
        let own = request.into_inner();
        let token = own.token;
        let ticket = translate::ticket(Some(own), None).or_status()?;
        self.done(ticket.release().or_status()?, token).await
    }

    async fn cancel(&self, request: Request<proto::TicketRef>) -> UnaryResult<proto::Done> {
        let own = request.into_inner();
        let token = own.token;
        let ticket = translate::ticket(Some(own), None).or_status()?;
        self.done(ticket.cancel().or_status()?, token).await
    }

    async fn renew(&self, request: Request<proto::RenewRequest>) -> UnaryResult<proto::Done> {
        let renew = request.into_inner();
        let token = token_of(&renew.own);
        self.done(translate::renew(renew, None).or_status()?, token).await
    }

    async fn note(&self, request: Request<proto::NoteRequest>) -> UnaryResult<proto::Done> {
        let note = request.into_inner();
        let token = token_of(&note.own);
        self.done(translate::note(note, None).or_status()?, token).await
    }

    async fn recovered(
        &self,
        request: Request<proto::TicketRef>,
    ) -> UnaryResult<proto::RecoveredReply> {
        let ticket = translate::ticket(Some(request.into_inner()), None).or_status()?;
        match self.put_through(ticket.recovered().or_status()?).await.or_status()? {
            Answer::Recovered(death) => {
                let death = death.as_deref().map(translate::ending);
                Ok(Response::new(proto::RecoveredReply { death }))
            }
            _ => Err(status(ApiError::unexpected())),
        }
    }

    async fn outcome(
        &self,
        request: Request<proto::OutcomeAlone>,
    ) -> UnaryResult<proto::OutcomeReply> {
        let key = request::request_key(&request.into_inner().request_id).or_status()?;
        let outcome = Command::Outcome(RequestRef::Alone(key));
        let answered = self.context.engine.submit(None, outcome).await.or_status()?;
        Ok(Response::new(translate::outcome(answered).or_status()?))
    }

    async fn put(&self, request: Request<proto::PutRequest>) -> UnaryResult<proto::Fence> {
        self.through_fence(translate::put(request.into_inner()).or_status()?).await
    }

    async fn raise(&self, request: Request<proto::RaiseRequest>) -> UnaryResult<proto::Fence> {
        self.through_fence(translate::raise(request.get_ref()).or_status()?).await
    }

    async fn get(&self, request: Request<proto::GetRequest>) -> UnaryResult<proto::GetReply> {
        let key = request::name(&request.get_ref().key).or_status()?;
        let look = move |node: &Node| node.state().fence(&key).map(translate::fence);
        let fence = self.context.engine.read(look).await.or_status()?;
        Ok(Response::new(proto::GetReply { fence }))
    }

    async fn revoke(&self, request: Request<proto::RevokeRequest>) -> UnaryResult<proto::Count> {
        self.count(translate::revoke(request.into_inner()).or_status()?).await
    }

    async fn force(&self, request: Request<proto::ForceRequest>) -> UnaryResult<proto::Count> {
        self.count(translate::force(request.into_inner()).or_status()?).await
    }

    async fn show(&self, request: Request<proto::ShowRequest>) -> UnaryResult<proto::Lock> {
        let sent = request.into_inner();
        let name = request::name(&sent.name).or_status()?;
        let caller = self.context.engine.caller().clone();
        let look = move |node: &Node| {
            let state = node.state();
            caller.require(state, Right::Read, &name)?;
            let view = state.lock_view(&name, TICKETS_SHOWN);
            Ok::<_, Refusal>(view.map(|view| translate::lock(&view, state.now_ms())))
        };
        let lock = self.context.engine.look(sent.stale, look).await.or_status()?.or_status()?;
        let nobody = || proto::Lock { name: sent.name, ..proto::Lock::default() };
        Ok(Response::new(lock.unwrap_or_else(nobody)))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> UnaryResult<proto::ListReply> {
        let sent = request.into_inner();
        let after = sent.after.as_deref().map(request::name).transpose().or_status()?;
        let limit = request::limit(translate::unless_zero(sent.limit).map(u64::from));
        let limit = limit.or_status()?;
        request::prefix(&sent.prefix).or_status()?;
        let caller = self.context.engine.caller().clone();
        let look = move |node: &Node| {
            let state = node.state();
            let page = reads::list(&caller, state, &sent.prefix, after.as_ref(), limit);
            let locks = page.locks.iter().map(|view| translate::lock(view, state.now_ms()));
            let next_after = page.next_after.as_ref().map(|name| name.as_bytes().to_vec().into());
            proto::ListReply { locks: locks.collect(), next_after }
        };
        Ok(Response::new(self.context.engine.look(sent.stale, look).await.or_status()?))
    }

    async fn watch(&self, request: Request<proto::WatchRequest>) -> UnaryResult<Self::WatchStream> {
        let connection = connection(&request);
        let scope = translate::scope(request.into_inner()).or_status()?;
        let watch = self.context.engine.watch(scope, EVENTS_MAX).await.or_status()?;
        let cut = connection.cut_unless_read(watch.too_slow());
        Ok(Response::new(Box::pin(WatchEvents { watch, state: Progress::New, _cut: cut })))
    }

    async fn status(&self, _: Request<proto::StatusRequest>) -> UnaryResult<proto::StatusReply> {
        let look = |node: &Node| {
            let members: Vec<(u64, bool, String)> = node
                .cluster()
                .members()
                .iter()
                .map(|(id, member)| (id.0, member.votes, member.address.clone()))
                .collect();
            (node.leader(), members)
        };
        let (leader, members) = self.context.engine.peek(look).await.or_status()?;
        let member = |(id, votes, peer)| {
            let contact = self.context.membership.contact_of(holdfast_node::NodeId(id));
            let http = contact.map(|contact| contact.http).unwrap_or_default();
            proto::Member { id, votes, peer, http, applied: None }
        };
        Ok(Response::new(proto::StatusReply {
            node: self.context.id.0,
            leader: leader.map(|leader| leader.0),
            members: members.into_iter().map(member).collect(),
        }))
    }
}

/// The connection that a request came over.
fn connection<T>(request: &Request<T>) -> Connection {
    request.extensions().get().cloned().unwrap_or_default()
}

/// The events of a watch.
struct WatchEvents {
    watch: Subscriber,
    state: Progress,
    _cut: CutUnlessRead,
}

/// The state of an event stream.
enum Progress {
    New,
    Begun,
    Over,
}

impl Stream for WatchEvents {
    type Item = Result<proto::WatchEvent, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        match self.state {
            Progress::New => {
                self.state = Progress::Begun;
                let what = Some(watch_event::What::Watching(proto::Watching {}));
                return Poll::Ready(Some(Ok(proto::WatchEvent { what })));
            }
            Progress::Begun => {}
            Progress::Over => return Poll::Ready(None),
        }
        loop {
            let (effect, now_ms) = match ready!(self.watch.poll_effect(context)) {
                Ok(news) => news,
                Err(missed) => {
                    self.state = Progress::Over;
                    return Poll::Ready(Some(Err(status(missed.into()))));
                }
            };
            if let Some(what) = translate::watched(&effect, now_ms) {
                return Poll::Ready(Some(Ok(proto::WatchEvent { what: Some(what) })));
            }
        }
    }
}
