//! Limits how many client connections a door may have, whatever its protocol.

use super::{DOORS, Listener};
use crate::activity::{Activity, IdleSet};
use crate::metrics::DoorMetrics;
use crate::stream::Stream;
use prometheus_client::metrics::gauge::Gauge;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections per door. A waiting one costs about 20 KB, so all of them stay near 200 MB.
const CONNECTIONS_MAX: usize = 10_000;

/// How many connections beyond the limit may be in the course of being refused; later ones wait to
/// be accepted.
const REFUSED_MAX: usize = 64;

/// How long refusing a connection may take.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a new connection waits for the place of an evicted one.
const PLACE_TIMEOUT: Duration = Duration::from_secs(1);

/// File descriptors reserved for the log, snapshots and peers; a quarter of all if there are few.
const FILES_KEPT: u64 = 256;

/// How long to wait before accepting again when out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How often that is logged.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The number of connections that each door of this process may have.
pub(crate) fn connections_max() -> usize {
    connections_within(files_allowed())
}

/// The same for a process that may have this many open files. Connections that are being refused
/// count as well.
fn connections_within(files: u64) -> usize {
    let kept = FILES_KEPT.min(files / 4);
    let of_door = usize::try_from((files - kept) / DOORS.len() as u64).unwrap_or(usize::MAX);
    CONNECTIONS_MAX.min(of_door - of_door / 8)
}

/// How many connections may be in the course of being refused.
fn refused_max(connections_max: usize) -> usize {
    (connections_max / 8).clamp(1, REFUSED_MAX)
}

/// Raises the limit on open files and returns it: every connection needs one, and the default is
/// often only 1,024.
fn files_allowed() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    // `None` means no limit.
    (if raised { maximum } else { current }).unwrap_or(u64::MAX)
}

/// A door's connection limit, and the metrics that count its connections.
pub(crate) struct ConnectionLimit {
    pub(crate) connections_max: usize,
    pub(crate) metrics: DoorMetrics,
}

/// Room for a number of connections; idle ones are evicted when others need it.
struct Places {
    room: Arc<Semaphore>,
    idle: Arc<IdleSet>,
}

/// A connection that was admitted. Its place may still have to be vacated by an evicted one.
struct Admission {
    permit: Option<OwnedSemaphorePermit>,
    room: Arc<Semaphore>,
    activity: Arc<Activity>,
}

impl Places {
    fn new(max: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(max)), idle: Arc::default() }
    }

    fn admit(&self) -> Option<Admission> {
        let permit = self.room.clone().try_acquire_owned().ok();
        let has_place = permit.is_some() || self.idle.evict_oldest();
        let (room, idle) = (self.room.clone(), &self.idle);
        has_place.then(|| Admission { permit, room, activity: idle.enter() })
    }

    /// Waits for a place if no connection is idle. Only for connections that are short-lived.
    async fn admit_or_wait(&self) -> Admission {
        if let Some(admission) = self.admit() {
            return admission;
        }
        let room = self.room.clone();
        // An error would mean that the semaphore was closed, which never happens.
        let permit = room.clone().acquire_owned().await.ok();
        Admission { permit, room, activity: self.idle.enter() }
    }
}

impl Admission {
    async fn place(self) -> Option<OwnedSemaphorePermit> {
        match self.permit {
            Some(permit) => Some(permit),
            None => timeout(PLACE_TIMEOUT, self.room.acquire_owned()).await.ok()?.ok(),
        }
    }
}

/// Serves connections until the future is dropped, which also drops every connection.
///
/// `talk` gets the connections there is room for. When there is none, the one that has been idle
/// longest is evicted: `talk` marks a connection as busy through [`Activity`], and must return when
/// it is evicted. If none is idle, `refuse` gets the new connection, and a short time to send the
/// reason.
pub(crate) async fn serve<T, R>(
    listener: Listener,
    limit: ConnectionLimit,
    talk: impl Fn(Stream, Arc<Activity>) -> T,
    refuse: impl Fn(Stream, Arc<Activity>) -> R,
) -> io::Result<()>
where
    T: Future<Output = ()> + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let places = Places::new(limit.connections_max);
    let refusals = Places::new(refused_max(limit.connections_max));
    let mut connections = JoinSet::new();
    let mut warned = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                hold_on(&error, &mut warned).await;
                continue;
            }
        };
        if let Some(admission) = places.admit() {
            let open = limit.metrics.connections.clone();
            let talking = talk(stream, admission.activity.clone());
            connections.spawn(async move {
                let Some(place) = admission.place().await else { return };
                let _counted = Counted::new(open, place);
                talking.await;
            });
            continue;
        }
        limit.metrics.connections_refused.inc();
        // Later connections wait in the listen backlog: closed right away, they would not learn
        // why.
        let admission = refusals.admit_or_wait().await;
        let refusing = refuse(stream, admission.activity.clone());
        connections.spawn(async move {
            let Some(_place) = admission.place().await else { return };
            let _ = timeout(REFUSAL_TIMEOUT, refusing).await;
        });
    }
}

/// A connection that is counted until this is dropped.
struct Counted {
    open: Gauge,
    _permit: OwnedSemaphorePermit,
}

impl Counted {
    fn new(open: Gauge, permit: OwnedSemaphorePermit) -> Self {
        open.inc();
        Self { open, _permit: permit }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.dec();
    }
}

/// Sends the reason and closes the connection.
pub(crate) async fn turn_away(mut stream: Stream, why: &'static [u8]) {
    let tell = async {
        stream.write_all(why).await?;
        stream.shutdown().await?;
        // Unread data from the client would make the kernel reset the connection and discard the
        // reply.
        let mut rest = [0; 1_024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // A client that hangs up misses the reason.
    let _ = tell.await;
}

/// Handles a failed accept. A client that hung up is no concern; for anything else, waits for it to
/// pass. `warned` is when this was last logged.
async fn hold_on(error: &io::Error, warned: &mut Option<Instant>) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        if warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!("can't accept connections for now: {error}");
        }
        sleep(ACCEPT_RETRY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `ulimit -n 300`, each door allowed 128 connections and 64 more that were being refused:
    /// a burst used up every file descriptor of the process, and the next connections were reset.
    #[test]
    fn connection_limits_leave_files_for_everything_else() {
        for files in [64, 256, 300, 512, 1_024, 4_096, 65_536, 1 << 20] {
            let connections = connections_within(files);
            let open = DOORS.len() as u64 * (connections + refused_max(connections)) as u64;
            assert!(connections > 0, "{files} files");
            assert!(open <= files - FILES_KEPT.min(files / 4), "{files} files: {open} are open");
        }
        assert_eq!(connections_within(1 << 20), CONNECTIONS_MAX);
    }
}
