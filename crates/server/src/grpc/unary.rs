//! The calls: each does one thing, without a session.

use super::translate;
use super::{Door, session};
use crate::api::{PAGE_MAX, TICKETS_SHOWN};
use crate::connection::{Connection, CutUnlessRead};
use crate::engine::Watch;
use crate::failure::Failure;
use crate::times;
use crate::waits::{self, Taking};
use holdfast_core::{Answer, Command, Label, Request as CoreRequest, Revoke, Scope, Token};
use holdfast_node::Node;
use holdfast_proto::v1::holdfast_server::Holdfast;
use holdfast_proto::v1::{self as proto, outcome_reply, watch_event, watch_request};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// Events that wait for a slow watcher.
const EVENTS_MAX: usize = 1_024;

type Answering<T> = Result<Response<T>, Status>;

impl Door {
    /// Puts a command through the log and takes its answer.
    async fn put_through(&self, command: Command) -> Result<Answer, Failure> {
        Ok(self.api.ask(None, command).await?.answer?)
    }

    async fn done(&self, command: Command, token: u64) -> Answering<proto::Done> {
        self.put_through(command).await?;
        Ok(Response::new(proto::Done { token }))
    }

    async fn through_fence(&self, command: Command) -> Answering<proto::Fence> {
        match self.put_through(command).await? {
            Answer::Passed(fence) => Ok(Response::new(translate::fence(&fence))),
            _ => Err(Failure::unexpected().into()),
        }
    }

    async fn count(&self, command: Command) -> Answering<proto::Count> {
        match self.put_through(command).await? {
            Answer::RevocationAsked(count) | Answer::Forced(count) => {
                Ok(Response::new(proto::Count { count: count as u64 }))
            }
            _ => Err(Failure::unexpected().into()),
        }
    }
}

fn token_of(own: &Option<proto::Own>) -> u64 {
    own.as_ref().map_or(0, |own| own.token)
}

#[tonic::async_trait]
impl Holdfast for Door {
    type SessionStream = session::Outgoing;
    type WatchStream = Pin<Box<dyn Stream<Item = Result<proto::WatchEvent, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<proto::ToServer>>,
    ) -> Answering<Self::SessionStream> {
        session::serve(self, request).await
    }

    async fn acquire(&self, request: Request<proto::AcquireAlone>) -> Answering<proto::Standing> {
        let connection = connection(&request);
        let sent = request.into_inner();
        let key = sent.request_id.as_ref().map(translate::request_key).transpose()?;
        let acquire = translate::acquire(sent.acquire.unwrap_or_default(), None)?;
        let request = key.map(CoreRequest::Alone);
        let standing =
            waits::take(&self.api, &connection, request, Taking::Acquire(acquire)).await?;
        Ok(Response::new(translate::standing(&standing)))
    }

    async fn release(&self, request: Request<proto::Own>) -> Answering<proto::Done> {
        let own = request.into_inner();
        let token = own.token;
        let (target, proof) = translate::own(Some(own), None)?;
        self.done(Command::Release { target, proof }, token).await
    }

    async fn cancel(&self, request: Request<proto::Own>) -> Answering<proto::Done> {
        let own = request.into_inner();
        let token = own.token;
        let (target, proof) = translate::own(Some(own), None)?;
        self.done(Command::Cancel { target, proof }, token).await
    }

    async fn renew(&self, request: Request<proto::RenewRequest>) -> Answering<proto::Done> {
        let renew = request.into_inner();
        let token = token_of(&renew.own);
        self.done(translate::renew(renew, None)?, token).await
    }

    async fn note(&self, request: Request<proto::NoteRequest>) -> Answering<proto::Done> {
        let note = request.into_inner();
        let token = token_of(&note.own);
        self.done(translate::note(note, None)?, token).await
    }

    async fn recovered(&self, request: Request<proto::Own>) -> Answering<proto::RecoveredReply> {
        let (target, proof) = translate::own(Some(request.into_inner()), None)?;
        match self.put_through(Command::Recovered { target, proof }).await? {
            Answer::Recovered(death) => {
                let death = death.as_deref().map(translate::ending);
                Ok(Response::new(proto::RecoveredReply { death }))
            }
            _ => Err(Failure::unexpected().into()),
        }
    }

    async fn outcome(
        &self,
        request: Request<proto::OutcomeAlone>,
    ) -> Answering<proto::OutcomeReply> {
        let key = translate::request_key(&request.into_inner().request_id)?;
        let outcome = Command::Outcome(CoreRequest::Alone(key));
        let answered = self.api.ask(None, outcome).await?;
        let what = match answered.answer {
            Ok(Answer::Standing(standing)) => {
                outcome_reply::What::Standing(translate::standing(&standing))
            }
            Ok(Answer::Barred) => outcome_reply::What::Never(proto::Never {}),
            Ok(_) => return Err(Failure::unexpected().into()),
            Err(refusal) => outcome_reply::What::Refused(translate::refused(refusal.into())),
        };
        Ok(Response::new(proto::OutcomeReply { what: Some(what) }))
    }

    async fn put(&self, request: Request<proto::PutRequest>) -> Answering<proto::Fence> {
        self.through_fence(translate::put(request.get_ref())?).await
    }

    async fn raise(&self, request: Request<proto::RaiseRequest>) -> Answering<proto::Fence> {
        self.through_fence(translate::raise(request.get_ref())?).await
    }

    async fn get(&self, request: Request<proto::GetRequest>) -> Answering<proto::GetReply> {
        let key = translate::name(&request.get_ref().key)?;
        let look = move |node: &Node| node.state().fence(&key).map(translate::fence);
        let fence = self.api.read(look).await?;
        Ok(Response::new(proto::GetReply { fence }))
    }

    async fn revoke(&self, request: Request<proto::RevokeRequest>) -> Answering<proto::Count> {
        let sent = request.into_inner();
        let revoke = Revoke {
            name: translate::name(&sent.name)?,
            token: sent.token.map(Token),
            by: by(sent.by)?,
            reason: translate::reason(&sent.reason)?,
            within_ms: times::within_ms(sent.within_ms)?,
            force: sent.force,
        };
        self.count(Command::Revoke(revoke)).await
    }

    async fn force(&self, request: Request<proto::ForceRequest>) -> Answering<proto::Count> {
        let sent = request.into_inner();
        let force = Command::Force {
            name: translate::name(&sent.name)?,
            token: sent.token.map(Token),
            by: by(sent.by)?,
            reason: translate::reason(&sent.reason)?,
        };
        self.count(force).await
    }

    async fn show(&self, request: Request<proto::ShowRequest>) -> Answering<proto::Lock> {
        let sent = request.into_inner();
        let name = translate::name(&sent.name)?;
        let look = move |node: &Node| {
            let state = node.state();
            let view = state.lock_view(&name, TICKETS_SHOWN);
            view.map(|view| translate::lock(&view, state.now_ms()))
        };
        let lock = self.api.look(sent.stale, look).await?;
        let nobody = || proto::Lock { name: sent.name, ..proto::Lock::default() };
        Ok(Response::new(lock.unwrap_or_else(nobody)))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Answering<proto::ListReply> {
        let sent = request.into_inner();
        let after = sent.after.as_ref().map(translate::name).transpose()?;
        let limit = match sent.limit {
            0 => 100,
            limit => (limit as usize).min(PAGE_MAX),
        };
        let look = move |node: &Node| {
            let state = node.state();
            let page = state.list(&sent.prefix, after.as_ref(), limit);
            let locks = page.locks.iter().map(|view| translate::lock(view, state.now_ms()));
            let next_after = page.next_after.as_ref().map(|name| name.as_bytes().to_vec().into());
            proto::ListReply { locks: locks.collect(), next_after }
        };
        Ok(Response::new(self.api.look(sent.stale, look).await?))
    }

    async fn watch(&self, request: Request<proto::WatchRequest>) -> Answering<Self::WatchStream> {
        let connection = connection(&request);
        let scope = match request.into_inner().scope {
            Some(watch_request::Scope::Name(name)) => Scope::Name(translate::name(&name)?),
            Some(watch_request::Scope::Prefix(prefix)) if !prefix.is_empty() => {
                Scope::Prefix(Some(translate::name(&prefix)?))
            }
            _ => Scope::Prefix(None),
        };
        let watch = self.api.handle.watch(scope, EVENTS_MAX).await.map_err(Failure::from)?;
        let cut = connection.cut_unless_read(watch.too_slow());
        Ok(Response::new(Box::pin(Watching { watch, state: Progress::New, _cut: cut })))
    }

    async fn status(&self, _: Request<proto::StatusRequest>) -> Answering<proto::StatusReply> {
        let look = |node: &Node| {
            let members: Vec<(u64, bool, String)> = node
                .cluster()
                .members()
                .iter()
                .map(|(id, member)| (id.0, member.votes, member.address.clone()))
                .collect();
            (node.leader(), members)
        };
        let (leader, members) = self.api.peek(look).await?;
        let member = |(id, votes, peer)| {
            let contact = self.api.membership.contact_of(holdfast_node::NodeId(id));
            let http = contact.map(|contact| contact.http).unwrap_or_default();
            proto::Member { id, votes, peer, http, applied: None }
        };
        Ok(Response::new(proto::StatusReply {
            node: self.api.id.0,
            leader: leader.map(|leader| leader.0),
            members: members.into_iter().map(member).collect(),
        }))
    }
}

fn by(bytes: bytes::Bytes) -> Result<Label, Failure> {
    let label = translate::label(Some(bytes))?;
    label.ok_or_else(|| Failure::bad("by is missing", "say who asks"))
}

/// The connection that a request came over.
fn connection<T>(request: &Request<T>) -> Connection {
    request.extensions().get().cloned().unwrap_or_default()
}

/// What a watcher hears.
struct Watching {
    watch: Watch,
    state: Progress,
    _cut: CutUnlessRead,
}

/// How far a stream of events has come.
enum Progress {
    New,
    Begun,
    Over,
}

impl Stream for Watching {
    type Item = Result<proto::WatchEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
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
            let (effect, now_ms) = match ready!(self.watch.poll_next(context)) {
                Ok(news) => news,
                Err(missed) => {
                    self.state = Progress::Over;
                    return Poll::Ready(Some(Err(Failure::from(missed).into())));
                }
            };
            if let Some(what) = translate::watched(&effect, now_ms) {
                return Poll::Ready(Some(Ok(proto::WatchEvent { what: Some(what) })));
            }
        }
    }
}
