//! Calls to an etcd cluster: fails over between its members, authenticates, and tells definite
//! errors from lost replies.

use super::proto;
use crate::clock::Moment;
use crate::driver::seconds;
use crate::error::Error;
use proto::auth_client::AuthClient;
use std::error::Error as _;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

/// The pause after every member has been tried without success.
pub(super) const ROUND_PAUSE: Duration = Duration::from_millis(200);

/// The minimum time that a member gets to reply before the next one is tried.
const ATTEMPT_MIN: Duration = Duration::from_millis(500);

/// HTTP/2 pings detect connections that died silently. etcd disconnects clients that ping more
/// often than every 5s.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Client {
    members: Vec<Member>,
    /// The member that calls go to. It changes only when that member fails.
    current: AtomicUsize,
    credentials: Option<Credentials>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    timeout: Duration,
}

struct Member {
    address: String,
    channel: Channel,
}

pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
}

/// Why a call failed.
pub(super) enum Failure {
    /// etcd refused, so this call had no effect. If `repeated`, an earlier attempt whose reply was
    /// lost may have had one.
    Refused { status: Status, repeated: bool },
    /// No reply: it may or may not have had an effect.
    Lost(String),
}

/// How often a call is retried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Sent once, to the current member.
    Never,
    /// Sent to each member once.
    Once,
    /// Retried until the connection's timeout.
    UntilTimeout,
}

impl Client {
    /// Connects lazily: nothing is sent yet.
    pub(super) fn new(
        endpoints: Vec<(String, Endpoint)>,
        credentials: Option<Credentials>,
        timeout: Duration,
    ) -> Self {
        let members = endpoints
            .into_iter()
            .map(|(address, endpoint)| {
                let endpoint = endpoint
                    .connect_timeout(timeout)
                    .tcp_nodelay(true)
                    .http2_keep_alive_interval(PING_EVERY)
                    .keep_alive_timeout(PING_TIMEOUT)
                    .keep_alive_while_idle(true);
                Member { address, channel: endpoint.connect_lazy() }
            })
            .collect();
        let (current, token) = (AtomicUsize::new(0), Mutex::new(None));
        Self { members, current, credentials, token, timeout }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Changes when calls go to another member.
    pub(super) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    fn member(&self) -> (usize, &Member) {
        let current = self.current();
        (current, &self.members[current % self.members.len()])
    }

    /// Switches to the next member, unless another call has already done so.
    pub(super) fn turn_from(&self, failed: usize) {
        let (next, relaxed) = (failed.wrapping_add(1), Ordering::Relaxed);
        let _ = self.current.compare_exchange(failed, next, relaxed, relaxed);
    }

    /// The channel to the current member, and a request that carries the credentials.
    pub(super) fn prepare<M>(&self, message: M) -> (usize, Channel, Request<M>) {
        let (index, member) = self.member();
        let mut request = Request::new(message);
        // Makes a member that lost its leader refuse the request instead of letting a watch hang.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = self.token().clone() {
            request.metadata_mut().insert("token", token);
        }
        (index, member.channel.clone(), request)
    }

    fn token(&self) -> MutexGuard<'_, Option<MetadataValue<Ascii>>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request. Retries it, also with other members, if the reply is lost, so it must be
    /// idempotent.
    pub(super) async fn call<M, T, F, Fut>(
        &self,
        repeat: Repeat,
        message: M,
        send: F,
    ) -> Result<T, Failure>
    where
        M: Clone,
        F: Fn(Channel, Request<M>) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let give_up = Moment::now().plus(self.timeout);
        let (mut attempts, mut repeated, mut authenticated) = (0, false, false);
        loop {
            let (index, channel, request) = self.prepare(message.clone());
            let limit = self.attempt_limit().min(give_up.remaining());
            let answer = timeout(limit, send(channel, request)).await;
            let cause = match answer {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) if wants_token(&status) && !authenticated => {
                    if self.credentials.is_none() {
                        return Err(Failure::Refused { status, repeated });
                    }
                    authenticated = true;
                    self.authenticate().await?;
                    continue;
                }
                Ok(Err(status)) if is_definite(&status) => {
                    return Err(Failure::Refused { status, repeated });
                }
                Ok(Err(status)) => describe(&status),
                Err(_) => format!("no answer within {}", seconds(limit)),
            };
            repeated = true;
            attempts += 1;
            self.turn_from(index);
            let round_over = attempts % self.members.len() == 0;
            let enough = match repeat {
                Repeat::Never => true,
                Repeat::Once => round_over,
                Repeat::UntilTimeout => false,
            };
            if give_up.has_passed() || enough {
                return Err(Failure::Lost(self.with_address(index, &cause)));
            }
            if round_over {
                sleep(ROUND_PAUSE.min(give_up.remaining())).await;
            }
        }
    }

    /// Gets a token for subsequent requests. Does nothing without credentials.
    pub(super) async fn authenticate(&self) -> Result<(), Failure> {
        let Some(Credentials { user, password }) = &self.credentials else { return Ok(()) };
        let message = proto::AuthenticateRequest { name: user.clone(), password: password.clone() };
        let mut attempts = 0;
        loop {
            let (index, member) = self.member();
            let mut client = AuthClient::new(member.channel.clone());
            let answer = timeout(self.attempt_limit(), client.authenticate(message.clone())).await;
            let cause = match answer {
                Ok(Ok(response)) => {
                    *self.token() = response.into_inner().token.parse().ok();
                    return Ok(());
                }
                // Like etcd's own client: credentials for a cluster that needs none are ignored.
                Ok(Err(status)) if status.message().contains("authentication is not enabled") => {
                    *self.token() = None;
                    return Ok(());
                }
                Ok(Err(status)) if is_definite(&status) => {
                    return Err(Failure::Refused { status, repeated: false });
                }
                Ok(Err(status)) => describe(&status),
                Err(_) => format!("no answer within {}", seconds(self.attempt_limit())),
            };
            self.turn_from(index);
            attempts += 1;
            if attempts >= self.members.len() {
                return Err(Failure::Lost(self.with_address(index, &cause)));
            }
        }
    }

    /// A member that does not answer must leave time for the others.
    fn attempt_limit(&self) -> Duration {
        let members = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        (self.timeout / members).max(ATTEMPT_MIN).min(self.timeout)
    }

    fn with_address(&self, index: usize, cause: &str) -> String {
        format!("etcd at {}: {cause}", self.members[index % self.members.len()].address)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost(cause) => Error::Unreachable(cause),
            Failure::Refused { status, .. } => refused(&status),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(cause) => f.write_str(cause),
            Self::Refused { status, .. } => f.write_str(status.message()),
        }
    }
}

fn refused(status: &Status) -> Error {
    let text = status.message();
    let hint = match status.code() {
        Code::InvalidArgument if text.contains("authentication failed") => {
            "check the user and password in the URL"
        }
        Code::InvalidArgument if text.contains("user name is empty") => {
            "this cluster wants a user and password: etcd://USER:PASSWORD@HOST"
        }
        Code::PermissionDenied => {
            "the user needs a role with read and write permission for the keys `NAME/...`"
        }
        Code::Unimplemented => "is this really an etcd with the v3 API?",
        _ => return Error::Refused(format!("etcd: {text}")),
    };
    Error::Refused(format!("etcd: {text}; {hint}"))
}

/// Whether the token is missing, expired, or older than a change of users and roles.
fn wants_token(status: &Status) -> bool {
    let text = status.message();
    status.code() == Code::Unauthenticated
        || text.contains("user name is empty")
        || text.contains("revision of auth store is old")
}

/// Whether etcd itself decided, as opposed to a network or cluster failure.
fn is_definite(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::InvalidArgument
            | Code::OutOfRange
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::Unauthenticated
            | Code::Unimplemented
    )
}

/// The root cause of a failed call, which tonic hides in the chain of sources.
fn describe(status: &Status) -> String {
    let mut last = None;
    let mut source = status.source();
    while let Some(error) = source {
        last = Some(error.to_string());
        source = error.source();
    }
    let text = status.message();
    match last {
        None => text.to_owned(),
        Some(cause) if cause.contains("refused") => {
            format!("{cause}; is etcd running there?")
        }
        Some(cause) if cause.contains("certificate") => {
            format!("{cause}; name the authority that signed it: etcds://...?cacert=FILE")
        }
        Some(cause) if text.contains("http2") || cause.contains("frame") => {
            format!(
                "{text} ({cause}); is this etcd's client port, and does it need etcds:// (TLS)?"
            )
        }
        Some(cause) => cause,
    }
}
