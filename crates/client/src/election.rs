//! Elections: the leader is who holds the lock, and its label is what it stands for.

use crate::client::Client;
use crate::error::Error;
use crate::guard::Guard;
use crate::watch::{Event, Watch};
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, watch_request};

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Its fencing token: the leader's term.
    pub token: u64,
    /// What it stands for, as it said when it campaigned.
    pub value: Option<Bytes>,
}

/// An election.
#[derive(Debug, Clone)]
pub struct Election {
    client: Client,
    name: Bytes,
}

impl Election {
    pub(crate) fn new(client: Client, name: Bytes) -> Self {
        Self { client, name }
    }

    /// Stands for election, and returns when elected. Releasing the guard resigns; when it is
    /// lost, another one leads.
    pub async fn campaign(&self, value: impl Into<String>) -> Result<Guard, Error> {
        self.client.lock(&self.name).label(value).acquire().await
    }

    /// Who leads now.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let show = proto::ShowRequest { name: self.name.clone(), stale: false };
        let call = async |mut server: crate::calls::Server, request| server.show(request).await;
        let lock = self.client.calls().call(show, call).await?;
        let leader = lock.holders.into_iter().next();
        Ok(leader.map(|holder| Leader { token: holder.token, value: holder.label }))
    }

    /// Who leads, from now on.
    pub async fn observe(&self) -> Result<Observer, Error> {
        let scope = watch_request::Scope::Name(self.name.clone());
        // The watch first: what happens before the look is in the look.
        let watch = Watch::begin(&self.client, scope).await?;
        let now = self.leader().await?;
        Ok(Observer { watch, now: Some(now) })
    }
}

/// Hears who leads.
#[derive(Debug)]
pub struct Observer {
    watch: Watch,
    now: Option<Option<Leader>>,
}

impl Observer {
    /// Who leads: first as it is now, then whenever it changes; none while nobody does.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        if let Some(now) = self.now.take() {
            return Ok(now);
        }
        loop {
            match self.watch.next().await? {
                Event::Granted { token, label, .. } => {
                    return Ok(Some(Leader { token, value: label }));
                }
                Event::Ended { held: true, .. } => return Ok(None),
                _ => {}
            }
        }
    }
}
