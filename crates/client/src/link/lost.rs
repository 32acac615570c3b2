//! A session that this client has lost by its own clock, while the server may still keep it. It must
//! surely be over before another one begins: an upgrade might still be served in it.
//!
//! An acquire with a lease of its own that was not answered may have got its lock, and nobody knows
//! that ticket's secret. So it is asked again under its old number, which has one effect, and what it
//! got is given up. Only if the server has ended the session too, nobody can know.

use super::desk::Desk;
use super::stream::{self, Stream};
use crate::calls::Server;
use crate::clock::Moment;
use crate::error;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request, standing, to_client, to_server};
use std::collections::BTreeMap;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Status};

/// A session that was lost.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    attach: proto::Attach,
    /// Acquires with a lease of their own that were not answered, by their numbers.
    acquires: BTreeMap<u64, proto::Acquire>,
    since: Moment,
}

impl Lost {
    pub(super) fn new(
        session: u64,
        secret: Bytes,
        acquires: BTreeMap<u64, proto::Acquire>,
    ) -> Self {
        let attach = proto::Attach { session, secret, tickets: Vec::new() };
        Self { attach, acquires, since: Moment::now() }
    }

    /// Ends it, if the server has not, and gives up what was got in it.
    pub(super) async fn end(
        self,
        client: &Server,
        password: Option<&MetadataValue<Ascii>>,
    ) -> Result<(), Status> {
        let first = proto::ToServer { number: 0, what: Some(to_server::What::Attach(self.attach)) };
        let mut stream = match stream::begin(client.clone(), password, first).await {
            Ok((_, stream)) => stream,
            Err(status) if stream::is_over(&status) => return Ok(()),
            Err(status) => return Err(status),
        };
        for (own, held) in ask_again(&mut stream, self.acquires).await? {
            give_up(client.clone(), password, own, held).await?;
        }
        stream.close().await
    }
}

impl Desk {
    /// Whether something may be held that nobody asks for any more.
    pub(super) fn has_lost_acquires(&self) -> bool {
        self.lost.as_ref().is_some_and(|lost| !lost.acquires.is_empty())
    }

    /// Gives up what could not be asked again for too long.
    pub(super) fn give_up_lost_acquires(&mut self, is_too_old: impl Fn(Moment) -> bool) {
        if let Some(lost) = self.lost.as_mut().filter(|lost| is_too_old(lost.since)) {
            lost.acquires.clear();
        }
    }
}

/// The tickets that the acquires have drawn, and whether they are held.
async fn ask_again(
    stream: &mut Stream,
    mut acquires: BTreeMap<u64, proto::Acquire>,
) -> Result<Vec<(proto::Own, bool)>, Status> {
    let lowest = acquires.keys().next().copied().unwrap_or_default();
    for (&id, acquire) in &acquires {
        let what = Some(request::What::Acquire(acquire.clone()));
        let request = to_server::What::Request(proto::Request { id, lowest, what });
        if !stream.send(proto::ToServer { number: id, what: Some(request) }) {
            return Err(Status::unavailable("the server takes no more requests"));
        }
    }
    let mut drawn = Vec::new();
    while !acquires.is_empty() {
        let message = stream.incoming.message().await?;
        let message = message.ok_or_else(|| Status::unavailable("the server hung up"))?;
        let standing = match message.what {
            Some(to_client::What::Standing(standing)) => standing.what,
            Some(to_client::What::TryAgain(again)) => return Err(Status::unavailable(again.why)),
            Some(to_client::What::SessionEnded(_)) => break,
            // It was refused; or this is news of a ticket, whose number is no request's.
            _ => None,
        };
        let Some(acquire) = acquires.remove(&message.number) else { continue };
        let name = acquire.names.into_iter().next().unwrap_or_default();
        match standing {
            Some(standing::What::Held(grant)) => {
                drawn.push((proto::Own { name, token: grant.token, secret: grant.secret }, true));
            }
            Some(standing::What::Waiting(line)) => {
                drawn.push((proto::Own { name, token: line.token, secret: line.secret }, false));
            }
            Some(standing::What::Over(_)) | None => {}
        }
    }
    Ok(drawn)
}

/// Takes a ticket out of the line, and releases it if it was served before that.
async fn give_up(
    mut client: Server,
    password: Option<&MetadataValue<Ascii>>,
    own: proto::Own,
    held: bool,
) -> Result<(), Status> {
    let request = || {
        let mut request = Request::new(own.clone());
        if let Some(password) = password {
            request.metadata_mut().insert("authorization", password.clone());
        }
        request
    };
    if !held {
        settled(client.cancel(request()).await.map(drop))?;
    }
    settled(client.release(request()).await.map(drop))
}

/// A refusal is an answer: there is nothing to be given up.
fn settled(answer: Result<(), Status>) -> Result<(), Status> {
    answer.or_else(|status| match error::may_work_elsewhere(&status) {
        true => Err(status),
        false => Ok(()),
    })
}
