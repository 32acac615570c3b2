//! The fenced register inside Holdfast, as a [`Fence`].
//!
//! The client's register takes the token from a guard, so the fence is bound to one:
//!
//! ```no_run
//! use holdfast_fence::{Fence, register::Register};
//!
//! # async fn example(client: holdfast_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let guard = client.lock("ledger").acquire().await?;
//! let fence = Register::new(&client, &guard)?;
//! let found = fence.raise("ledger", fence.token()).await?;
//! fence.write("ledger", fence.token(), "balance 40".into()).await?;
//! # Ok(()) }
//! ```

use crate::{Error, Fence, FenceFuture, Fenced, Highest, InvalidToken, Refused, Token};
use bytes::Bytes;
use holdfast_client::{Client, Error as ClientError, ErrorCode, Fence as RegisterState, Guard};

/// How often a call is repeated that its session took with it. A holder that slept through its session
/// learns so by its first call; with the same token it can be repeated through the next session.
const SESSIONS_MAX: u32 = 3;

/// The register, bound to the guard whose token it is shown.
#[derive(Debug)]
pub struct Register<'a> {
    client: &'a Client,
    guard: &'a Guard,
    token: Token,
}

impl<'a> Register<'a> {
    /// Writes as the holder of this guard.
    pub fn new(client: &'a Client, guard: &'a Guard) -> Result<Self, InvalidToken> {
        Ok(Self { client, guard, token: Token::try_from(guard)? })
    }

    /// The guard's token.
    pub fn token(&self) -> Token {
        self.token
    }

    fn check(&self, shown: Token) -> Result<(), InvalidToken> {
        if shown == self.token {
            return Ok(());
        }
        Err(InvalidToken::OfAnotherGuard { shown, own: self.token })
    }

    /// Translates the client's error; for a refusal, reads the numbers so that it names both tokens.
    async fn failed(&self, resource: &str, error: ClientError) -> Error {
        if is_fenced(&error) {
            return match self.read(resource).await {
                Ok(Fenced { highest, .. }) => {
                    Refused { resource: resource.into(), shown: self.token, highest }.into()
                }
                Err(error) => error,
            };
        }
        failed(error)
    }
}

impl Fence for Register<'_> {
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced> {
        Box::pin(async move {
            self.check(token)?;
            let register = self.client.register(resource);
            let mut raised = register.raise(self.guard).await;
            for _ in 0..SESSIONS_MAX {
                let Err(ClientError::SessionLost) = raised else { break };
                raised = register.raise(self.guard).await;
            }
            match raised {
                Ok(state) => Ok(fenced(state)),
                Err(error) => Err(self.failed(resource, error).await),
            }
        })
    }

    fn write<'a>(&'a self, resource: &'a str, token: Token, value: Bytes) -> FenceFuture<'a, ()> {
        Box::pin(async move {
            self.check(token)?;
            let register = self.client.register(resource);
            let mut written = register.put(&value, self.guard).await;
            for _ in 0..SESSIONS_MAX {
                let Err(ClientError::SessionLost) = written else { break };
                written = register.put(&value, self.guard).await;
            }
            match written {
                Ok(_) => Ok(()),
                Err(error) => Err(self.failed(resource, error).await),
            }
        })
    }

    fn read<'a>(&'a self, resource: &'a str) -> FenceFuture<'a, Fenced> {
        Box::pin(
            async move { self.client.register(resource).get().await.map(fenced).map_err(failed) },
        )
    }
}

impl TryFrom<&Guard> for Token {
    type Error = InvalidToken;

    fn try_from(guard: &Guard) -> Result<Self, InvalidToken> {
        if guard.is_permit() {
            return Err(InvalidToken::Permit);
        }
        let token = guard.token().get();
        if guard.is_shared() { Self::shared(token) } else { Self::exclusive(token) }
    }
}

fn fenced(state: RegisterState) -> Fenced {
    let RegisterState { highest_exclusive, highest, value } = state;
    let highest = Highest { exclusive: highest_exclusive.get(), any: highest.get() };
    Fenced { highest, value }
}

fn is_fenced(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { code: ErrorCode::Fenced, .. })
}

fn failed(error: ClientError) -> Error {
    let store = "Holdfast".into();
    match error {
        ClientError::Refused { .. } | ClientError::TooMany(_) | ClientError::Closed => {
            Error::Unavailable { store, source: error.into() }
        }
        _ => Error::Unknown { store, source: error.into() },
    }
}
