//! A lock that is held.

use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, How};
use crate::lease::{Lease, Standing};
use crate::link::{Fate, Health, Order, Revocation};
use crate::lock::millis;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How a holder before this one ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// On which lock.
    pub name: Bytes,
    /// Released, expired, closed, forced or restored.
    pub how: How,
    /// Its token.
    pub token: u64,
    /// What it called itself.
    pub label: Option<Bytes>,
    /// What it had left on the lock.
    pub note: Option<Bytes>,
}

/// A lock that is held, and kept alive until it is released or dropped.
///
/// Dropping it releases the lock as well, without waiting for an answer.
#[derive(Debug)]
pub struct Guard {
    client: Client,
    own: proto::Own,
    mode: proto::Mode,
    endings: Vec<Ending>,
    needs_recovery: bool,
    health: watch::Receiver<Health>,
    revocation: watch::Receiver<Option<Revocation>>,
    released: bool,
}

impl Guard {
    pub(crate) async fn new(
        client: Client,
        grant: proto::Grant,
        first_sent: Moment,
        fate: Fate,
    ) -> Result<Self, Error> {
        let name = grant.names.first().cloned().unwrap_or_default();
        let own = proto::Own { name, token: grant.token, secret: grant.secret.clone() };
        let (health, revocation) = (fate.health.subscribe(), fate.revocation.subscribe());
        let ttl = grant.ttl_ms.map(Duration::from_millis);
        let after = grant.after.iter();
        let endings = after.clone().filter_map(|after| {
            let last = after.last.as_ref()?;
            Some(Ending {
                name: after.name.clone(),
                how: How::of(last.how),
                token: last.token,
                label: last.label.clone(),
                note: last.note.clone(),
            })
        });
        let guard = Self {
            needs_recovery: after.clone().any(|after| after.needs_recovery.is_some()),
            endings: endings.collect(),
            mode: grant.mode(),
            own: own.clone(),
            health,
            revocation,
            released: false,
            client: client.clone(),
        };
        if let Some(ttl) = ttl {
            let waited = Duration::from_millis(grant.waited_ms);
            let mut renewal =
                Renewal { client, own, lease: Lease::granted(ttl, first_sent, waited), ttl };
            // What may be past already is renewed before it is handed out.
            if renewal.lease.standing(Moment::now()) == Standing::Over {
                renewal.renew().await?;
            }
            tokio::spawn(renewal.keep(fate.health));
        }
        Ok(guard)
    }

    /// The fencing token: show it to whatever the lock protects.
    pub fn token(&self) -> u64 {
        self.own.token
    }

    pub(crate) fn mode(&self) -> proto::Mode {
        self.mode
    }

    /// The name; of a lock of several names, the first.
    pub fn name(&self) -> &[u8] {
        &self.own.name
    }

    /// What proves that a request comes from this holder, for other ways to the server.
    pub fn secret(&self) -> &[u8] {
        &self.own.secret
    }

    /// How the holder before this one ended; none if nobody is remembered.
    pub fn ending(&self) -> Option<&Ending> {
        self.endings.first()
    }

    /// The same for each name of a lock of several.
    pub fn endings(&self) -> &[Ending] {
        &self.endings
    }

    /// Whether a holder died and nobody has put things right since: see [`Guard::recovered`].
    pub fn needs_recovery(&self) -> bool {
        self.needs_recovery
    }

    /// How the lease is now.
    pub fn health(&self) -> Health {
        *self.health.borrow()
    }

    /// Resolves when the lease is over or may be: stop what it protects. It does so before the
    /// server may serve the next one.
    pub async fn lost(&self) -> How {
        let mut health = self.health.clone();
        let lost = health.wait_for(|now| matches!(now, Health::Lost(_))).await;
        match lost.as_deref() {
            Ok(Health::Lost(how)) => *how,
            _ => How::Unknown,
        }
    }

    /// Resolves when somebody asks the holder to let go: finish, and release.
    pub async fn asked_to_let_go(&self) -> Revocation {
        let mut revocation = self.revocation.clone();
        let asked = revocation.wait_for(Option::is_some).await;
        match asked.as_deref() {
            Ok(Some(asked)) => asked.clone(),
            // The session is gone: nobody will ask any more.
            _ => std::future::pending().await,
        }
    }

    /// What becomes of the lease, as it changes.
    pub fn watch(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Leaves another note on the lock; none takes it away.
    pub async fn note(&self, note: Option<&[u8]>) -> Result<(), Error> {
        let note = note.map(Bytes::copy_from_slice);
        let what = request::What::Note(proto::NoteRequest { own: Some(self.own.clone()), note });
        self.client.ask(what, false).await.map(drop)
    }

    /// Says that what a dead holder left has been put right.
    pub async fn recovered(&self) -> Result<(), Error> {
        self.client.ask(request::What::Recovered(self.own.clone()), false).await.map(drop)
    }

    /// Lets go, with a certain answer: released, or it was over before.
    pub async fn release(mut self) -> Result<(), Error> {
        self.released = true;
        self.client.order(Order::Unfollow(self.own.token));
        self.client.ask(request::What::Release(self.own.clone()), false).await.map(drop)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            self.client.order(Order::Unfollow(self.own.token));
            self.client.tell(request::What::Release(self.own.clone()));
        }
    }
}

/// Keeps a lease of a deadline alive.
struct Renewal {
    client: Client,
    own: proto::Own,
    lease: Lease,
    ttl: Duration,
}

impl Renewal {
    /// Until nobody cares or it is lost.
    async fn keep(mut self, health: watch::Sender<Health>) {
        while !health.is_closed() && !matches!(*health.borrow(), Health::Lost(_)) {
            let pause = self.lease.every();
            sleep(pause).await;
            let left = Moment::now().until(self.lease.ends());
            // An answer that comes after the end is of no use.
            let renewed = timeout(left.min(pause), self.renew()).await;
            let now = match (renewed, self.lease.standing(Moment::now())) {
                (_, Standing::Over) => Health::Lost(How::Expired),
                (Ok(Err(Error::Refused { .. } | Error::Over(_))), _) => Health::Lost(How::Unknown),
                (_, Standing::Jeopardy) => Health::Jeopardy,
                (_, Standing::Good) => Health::Good,
            };
            if health.is_closed() {
                return;
            }
            health.send_if_modified(|before| {
                !matches!(before, Health::Lost(_)) && std::mem::replace(before, now) != now
            });
        }
    }

    async fn renew(&mut self) -> Result<(), Error> {
        let renew =
            proto::RenewRequest { own: Some(self.own.clone()), ttl_ms: Some(millis(self.ttl)) };
        let sent = Moment::now();
        self.client.ask(request::What::Renew(renew), false).await?;
        self.lease.confirm(sent);
        Ok(())
    }
}
