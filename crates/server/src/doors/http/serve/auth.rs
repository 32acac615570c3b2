//! Who makes a request: `Authorization: Bearer TOKEN`, `Authorization: Basic ...` with the name and
//! password of a user, or the certificate of the connection. gRPC sends the same headers.

use super::socket::Peer;
use crate::authentication::Authenticator;
use crate::doors::Context;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::Door;
use holdfast_gateway::{ApiError, Caller, Code};
use std::convert::Infallible;
use std::sync::Arc;

/// Passes requests on with their [`Caller`].
pub(crate) async fn check(
    State(authenticator): State<Arc<Authenticator>>,
    mut request: Request,
    next: Next,
) -> Response {
    // A request can't be shared between threads, so it is not kept while this waits.
    let peer = request.extensions().get::<Peer>().cloned();
    // Health checks are open: the probes that make them usually have no password.
    let open = matches!(request.uri().path(), "/healthz" | "/readyz");
    let credentials = if open { Ok(None) } else { Credentials::of(request.headers()).map(Some) };
    let caller = match credentials {
        Ok(Some(credentials)) => caller_of(&authenticator, peer, credentials).await,
        Ok(None) => Ok(anyone(peer.as_ref())),
        Err(_) if !authenticator.is_required() => Ok(anyone(peer.as_ref())),
        Err(error) => Err(error),
    };
    match caller {
        Ok(caller) => {
            request.extensions_mut().insert(caller.clone());
            let path = request.uri().path().to_owned();
            let response = next.run(request).await;
            if response.extensions().get() == Some(&Code::Forbidden) {
                authenticator.note_refusal(&caller, &path);
            }
            response
        }
        Err(error) => super::refuse::refuse(request, error).await,
    }
}

fn anyone(peer: Option<&Peer>) -> Caller {
    Caller::new(Door::Native, peer.and_then(|peer| peer.address))
}

async fn caller_of(
    authenticator: &Authenticator,
    peer: Option<Peer>,
    credentials: Option<Credentials>,
) -> Result<Caller, ApiError> {
    let caller = anyone(peer.as_ref());
    if !authenticator.is_required() {
        return Ok(caller);
    }
    match credentials {
        Some(Credentials::Token(token)) => Ok(authenticator.by_token(caller, &token).await?),
        Some(Credentials::Password { user, password }) => {
            Ok(authenticator.by_password(caller, Some(&user), &password).await?)
        }
        None => {
            let name = peer.as_ref().and_then(Peer::user);
            let caller = authenticator.by_certificate(caller, name.as_ref());
            if caller.user().is_none() {
                return Err(refused("a password or a token is needed"));
            }
            Ok(caller)
        }
    }
}

/// What a request sends to prove who it is from.
enum Credentials {
    Token(Vec<u8>),
    Password { user: Vec<u8>, password: Vec<u8> },
}

impl Credentials {
    fn of(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let Some(sent) = headers.get(AUTHORIZATION).map(|value| value.as_bytes()) else {
            return Ok(None);
        };
        let (scheme, rest) = sent.split_at(sent.iter().position(|b| *b == b' ').unwrap_or(0));
        let rest = rest.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return Ok(Some(Self::Token(rest.to_vec())));
        }
        if !scheme.eq_ignore_ascii_case(b"basic") {
            return Err(refused("unknown kind of authorization"));
        }
        let decoded = STANDARD.decode(rest).map_err(|_| refused("not valid base64"))?;
        let colon = decoded.iter().position(|byte| *byte == b':');
        let colon = colon.ok_or_else(|| refused("basic authorization is USER:PASSWORD"))?;
        let (user, password) = decoded.split_at(colon);
        let password = password.get(1..).unwrap_or_default().to_vec();
        Ok(Some(Self::Password { user: user.to_vec(), password }))
    }
}

fn refused(message: &'static str) -> ApiError {
    let hint = "send the header `Authorization: Bearer PASSWORD`, with the cluster's password or a \
                token, or log in as a user: `curl -u USER:PASSWORD`";
    ApiError::new(Code::Unauthenticated, message, hint)
}

/// The node, on behalf of whoever makes the request.
impl FromRequestParts<Self> for Context {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &Self) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>().cloned();
        Ok(state.for_caller(caller.unwrap_or_else(|| Caller::new(Door::Native, None))))
    }
}
