//! Taking a lock through `holdfast-client`, which waits in line.

use super::hold::HoldfastHold;
use super::inspect::inspect;
use super::{Holdfast, Servers, Tls};
use crate::clock::Moment;
use crate::driver::{Acquired, Held, Hold, Request, Validity, reached};
use crate::error::Error;
use crate::guard::Ending;
use crate::keeper::{Keeper, release_for_good};
use crate::token::Token;
use holdfast_client::{Client, Error as ClientError, Guard};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The pause before getting in line again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How long a reply may take after the end of the wait, on top of the timeout.
const GRACE: Duration = Duration::from_millis(500);

/// The longest lease with which a lock is first taken. If the reply is lost, nobody has the secret
/// that is needed to release the lock, which stays locked until this is over. A longer lease is
/// requested once the lock is held.
const FIRST_TTL_MAX: Duration = Duration::from_secs(30);

fn first_ttl(request: &Request) -> Duration {
    request.ttl.min(FIRST_TTL_MAX)
}

/// Connects and opens a session.
pub(super) async fn connect(servers: &Servers) -> Result<Client, Error> {
    let mut builder = Client::builder().timeout(servers.timeout.mul_f32(0.9));
    if let Some(password) = &servers.password {
        builder = builder.password(password);
    }
    if let Some(user) = &servers.user {
        builder = builder.user(user);
    }
    if let Some(Tls { files, server_name }) = &servers.tls {
        if let Some(ca) = &files.ca {
            builder = builder.ca_certificate(ca);
        }
        if let Some((cert, key)) = &files.identity {
            builder = builder.client_certificate(cert, key);
        }
        if let Some(name) = server_name {
            builder = builder.server_name(name);
        }
    }
    let named = servers.addresses.join(", ").replace("http://", "");
    builder.connect(&servers.addresses).await.map_err(|error| match error {
        ClientError::BadAddress(why) => Error::BadUrl(why),
        ClientError::Refused { message, .. } => {
            let hint = "check the password in the URL, as in `holdfast://:PASSWORD@host:7400`";
            Error::Refused(format!("{named}: {message}: {hint}"))
        }
        other => {
            let hint = match &servers.tls {
                Some(_) => "is it running, and is this its HTTP port?",
                None => {
                    "is it running, is this its HTTP port, and does it need holdfasts:// (TLS)?"
                }
            };
            Error::Unreachable(format!(
                "{named}: no Holdfast server answers there ({other}): {hint}"
            ))
        }
    })
}

pub(super) async fn acquire(engine: &Holdfast, request: &Request) -> Result<Acquired, Error> {
    let waits = !request.is_given_up();
    // The reply should have arrived long before this.
    let latest = |deadline: Moment| deadline.max(Moment::now()).plus(engine.timeout + GRACE);
    let latest = request.deadline.map(latest);
    // The last failure after which the lock may be held until its lease is over.
    let mut unsure: Option<String> = None;
    loop {
        let acquired = tokio::select! {
            acquired = attempt(engine, request) => acquired,
            // The client takes the ticket out of the line, or releases what it got.
            () = abandoned(request) => return Ok(Acquired::Busy { holder: None }),
            () = reached(latest) => return Err(not_sure(request, "no server answers")),
        };
        match acquired {
            Ok(guard) => return held(engine, request, guard).await,
            Err(ClientError::NotAcquired(_)) => {
                if let Some(cause) = unsure {
                    return Err(not_sure(request, &cause));
                }
                let holder = if waits { holder(engine, request).await } else { None };
                return Ok(Acquired::Busy { holder });
            }
            // Its ticket has ended, or the session that it was waiting with.
            Err(error @ (ClientError::SessionLost | ClientError::Over(_))) => {
                unsure = Some(error.to_string());
                sleep(RETRY_PAUSE).await;
            }
            Err(ClientError::Unreachable(why)) => return Err(not_sure(request, &why)),
            Err(ClientError::Refused { message, hint, .. }) => {
                return Err(Error::Refused(format!("{message} ({hint})")));
            }
            Err(other) => return Err(Error::Refused(other.to_string())),
        }
    }
}

/// Waits in line once, until the end of the wait.
async fn attempt(engine: &Holdfast, request: &Request) -> Result<Guard, ClientError> {
    let lock = engine.client.lock(&request.name);
    let lock = lock.ttl(first_ttl(request)).label(request.label.as_str());
    let lock = match &request.note {
        Some(note) => lock.note(note),
        None => lock,
    };
    let lock = match request.deadline.map(Moment::remaining) {
        None => lock,
        // With no time left this is a try.
        Some(left) => lock.wait(left),
    };
    lock.acquire().await
}

/// Resolves when the caller has dropped its future.
async fn abandoned(request: &Request) {
    let mut caller = request.caller.clone();
    while caller.changed().await.is_ok() {}
}

/// Detaches the lock from its session: from now on the lease is renewed and released by token and
/// secret.
async fn held(engine: &Holdfast, request: &Request, guard: Guard) -> Result<Acquired, Error> {
    let token = Token::new(guard.token().get());
    let hold = HoldfastHold::new(engine, &request.name, token, guard.secret());
    let ending = guard.ending().map(|ending| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (token, label) =
            (Some(Token::new(ending.token.get())), ending.label.as_deref().map(text));
        if ending.how.died() {
            Ending::of_death(token, label, ending.note.as_deref().map(text))
        } else {
            Ending::of_release(token, label)
        }
    });
    let valid_until = Moment::now().plus(guard.remaining());
    let mut validity = Validity { valid_until, over_by: Validity::unsure(first_ttl(request)) };
    if guard.detach().await.is_err() {
        return Err(Error::Refused("the server granted no lease of its own".to_owned()));
    }
    if request.ttl > FIRST_TTL_MAX {
        validity = match hold.extend(request.ttl).await {
            Ok(extended) => extended,
            Err(error) => {
                validity.over_by = Validity::unsure(request.ttl);
                let until = validity.over_by.wall_clock();
                let keeper = Keeper::new(request.name.clone(), Arc::new(hold), validity);
                request.finish_later(release_for_good(keeper, false));
                return Err(Error::Unsure { until, cause: error.to_string() });
            }
        };
    }
    Ok(Acquired::Held(Held { hold: Arc::new(hold), token: Some(token), ending, validity }))
}

/// Who holds the lock, for the error message; `None` if that can't be found out.
async fn holder(engine: &Holdfast, request: &Request) -> Option<String> {
    inspect(&engine.calls, &request.name).await.ok()??.holder
}

fn not_sure(request: &Request, cause: &str) -> Error {
    let until = Validity::unsure(first_ttl(request)).wall_clock();
    Error::Unsure { until, cause: cause.to_owned() }
}
