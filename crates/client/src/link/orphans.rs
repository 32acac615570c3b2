//! Upgrades that were lost with their session. The reader's ticket has a lease of its own, so the
//! writer's ticket, if the upgrade was served, is held on: it must be found, or nobody could ever
//! release it.
//!
//! The lost session is closed first (`stream.rs`): after that the upgrade can't be served any more.
//! Then the lock is looked at: its holder is the writer if it knows the reader's secret.

use super::asked::Asked;
use super::desk::Desk;
use crate::calls::Server;
use crate::code::ErrorCode;
use crate::error::{self, Error, How};
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request};
use tokio::task::JoinSet;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Status};

/// An upgrade whose outcome is not known.
pub(super) struct Orphan {
    /// Names it while it is searched for.
    id: u64,
    pub(super) asked: Asked,
    /// The writer's ticket, if its number is known.
    token: Option<u64>,
}

/// What it takes to find the writer's ticket.
#[derive(Debug, Clone)]
pub(super) struct Search {
    id: u64,
    reader: proto::Own,
    names: Vec<Bytes>,
    token: Option<u64>,
    ttl_ms: Option<u64>,
}

/// What came of a search.
#[derive(Debug)]
pub(super) struct Found {
    id: u64,
    /// The writer's ticket; none if the upgrade was not served, or is over.
    grant: Option<proto::Grant>,
}

impl Desk {
    /// An upgrade was not answered, or stood in line, when its session was lost.
    pub(super) fn lose_upgrade(&mut self, mut asked: Asked, token: Option<u64>, error: &Error) {
        asked.tell(Err(error.clone()));
        let Some(change) = &asked.change else { return };
        if change.has_own_lease {
            self.orphans_seen += 1;
            self.orphans.push(Orphan { id: self.orphans_seen, asked, token });
        } else if let Some(hold) = change.hold.upgrade() {
            // The writer's ticket, if there is one, ends with the session, as the reader's does.
            hold.set_over_as_writer(How::Expired);
            self.give_back(hold);
        }
    }

    /// Gives up what can't be found: nobody will know what came of it.
    pub(super) fn give_up_orphans(&mut self, give_up: impl Fn(&Orphan) -> bool) {
        let lost: Vec<Orphan> = self.orphans.extract_if(.., |orphan| give_up(orphan)).collect();
        for Orphan { asked, .. } in lost {
            let hold = asked.change.as_ref().map(|change| change.hold.clone());
            self.mark_over_as_writer(hold, How::Unknown);
        }
    }

    /// What to look for.
    pub(super) fn searches(&self) -> Vec<Search> {
        let search = |orphan: &Orphan| {
            let request::What::Upgrade(upgrade) = &orphan.asked.what else { return None };
            let reader = upgrade.own.clone()?;
            let hold = orphan.asked.change.as_ref().and_then(|change| change.hold.upgrade());
            Some(Search {
                id: orphan.id,
                names: match &hold {
                    Some(hold) => hold.names.clone(),
                    None => vec![reader.name.clone()],
                },
                reader,
                token: orphan.token,
                ttl_ms: hold.and_then(|hold| hold.own_ttl_ms()),
            })
        };
        self.orphans.iter().filter_map(search).collect()
    }

    pub(super) fn found(&mut self, found: Vec<Found>) {
        for Found { id, grant } in found {
            let at = self.orphans.iter().position(|orphan| orphan.id == id);
            let Some(Orphan { mut asked, .. }) = at.map(|at| self.orphans.swap_remove(at)) else {
                continue;
            };
            match (grant, asked.upgrades(), asked.permit.take()) {
                (Some(grant), Some(reader), Some(permit)) => {
                    self.upgraded(reader, asked, grant, permit);
                }
                _ => {
                    self.not_upgraded(&asked);
                }
            }
        }
    }
}

/// Looks for all of them at once.
pub(super) async fn search(
    server: &Server,
    password: Option<&MetadataValue<Ascii>>,
    searches: Vec<Search>,
) -> Result<Vec<Found>, Status> {
    let mut running = JoinSet::new();
    for search in searches {
        let seeker = Seeker { server: server.clone(), password: password.cloned() };
        running.spawn(seeker.seek(search));
    }
    let mut found = Vec::new();
    while let Some(sought) = running.join_next().await {
        found.push(sought.map_err(|error| Status::unavailable(error.to_string()))??);
    }
    Ok(found)
}

struct Seeker {
    server: Server,
    password: Option<MetadataValue<Ascii>>,
}

impl Seeker {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(password) = &self.password {
            request.metadata_mut().insert("authorization", password.clone());
        }
        request
    }

    async fn show(&mut self, name: &Bytes) -> Result<proto::Lock, Status> {
        let show = self.request(proto::ShowRequest { name: name.clone(), stale: false });
        Ok(self.server.show(show).await?.into_inner())
    }

    async fn seek(mut self, search: Search) -> Result<Found, Status> {
        let Search { id, reader, names, token, ttl_ms } = search;
        let shown = self.show(&reader.name).await?;
        let writes = |holder: &&proto::Ticket| {
            let fits = token.map_or(holder.token > reader.token, |token| holder.token == token);
            fits && holder.mode() == proto::Mode::Exclusive
        };
        let Some(holder) = shown.holders.iter().find(writes).map(|holder| holder.token) else {
            return Ok(Found { id, grant: None });
        };
        let own = proto::Own { token: holder, ..reader.clone() };
        if token.is_none() && !self.is_ours(own).await? {
            return Ok(Found { id, grant: None });
        }
        let mut after = Vec::new();
        for name in &names {
            let proto::Lock { last, needs_recovery, .. } = self.show(name).await?;
            if last.is_some() || needs_recovery.is_some() {
                after.push(proto::After { name: name.clone(), last, needs_recovery });
            }
        }
        let grant = proto::Grant {
            token: holder,
            names,
            mode: proto::Mode::Exclusive.into(),
            secret: reader.secret,
            ttl_ms,
            after,
            ..proto::Grant::default()
        };
        Ok(Found { id, grant: Some(grant) })
    }

    /// A held ticket can't be cancelled; but only its owner is told so.
    async fn is_ours(&mut self, own: proto::Own) -> Result<bool, Status> {
        let cancel = self.request(own);
        match self.server.cancel(cancel).await {
            Ok(_) => Ok(false),
            Err(status) if error::may_work_elsewhere(&status) => Err(status),
            Err(status) => {
                let served = ErrorCode::AlreadyServed;
                Ok(matches!(error::refused(&status), Error::Refused { code, .. } if code == served))
            }
        }
    }
}
