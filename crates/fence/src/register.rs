//! The fenced register inside Holdfast, as a [`Fence`].
//!
//! The client's register takes the token from a guard, so this fence is bound to one:
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

/// How often to retry a call whose session has ended. A holder that slept through its session
/// learns that from its first call, which can be retried in the next session with the same token.
const RETRIES_MAX: u32 = 3;

/// The longest value that a register holds.
pub const VALUE_BYTES_MAX: usize = 65_536;

/// The register, bound to the guard whose token it uses.
#[derive(Debug)]
pub struct Register<'a> {
    client: &'a Client,
    guard: &'a Guard,
    token: Token,
}

impl<'a> Register<'a> {
    /// Creates a fence that writes as the holder of this guard.
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

    /// The error, with both tokens if it is a refusal.
    async fn failed(&self, resource: &str, error: ClientError) -> Error {
        if !is_fenced(&error) {
            return failed(error);
        }
        match self.read(resource).await {
            Ok(Fenced { highest, .. }) => {
                Refused { resource: resource.into(), shown: self.token, highest }.into()
            }
            Err(error) => error,
        }
    }
}

impl Fence for Register<'_> {
    fn raise<'a>(&'a self, resource: &'a str, token: Token) -> FenceFuture<'a, Fenced> {
        Box::pin(async move {
            self.check(token)?;
            let register = self.client.register(resource);
            let mut raised = register.raise(self.guard).await;
            for _ in 0..RETRIES_MAX {
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
            if value.len() > VALUE_BYTES_MAX {
                let bytes = value.len();
                let source = format!("it has {bytes} bytes, a register holds {VALUE_BYTES_MAX}");
                return Err(Error::TooLarge { store: store(), source: source.into() });
            }
            // A holder that was paused past its lease is refused here, before anything is sent that
            // could be lost with its session.
            self.read(resource).await?.highest.admit(resource, token)?;
            let register = self.client.register(resource);
            let mut written = register.put(&value, self.guard).await;
            for _ in 0..RETRIES_MAX {
                let Err(ClientError::SessionLost) = written else { break };
                written = match register.put(&value, self.guard).await {
                    // The first put may have taken effect before the later holder came.
                    Err(error) if is_fenced(&error) => {
                        return Err(Error::Unknown { store: store(), source: error.into() });
                    }
                    written => written,
                };
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

fn store() -> String {
    "Holdfast".into()
}

fn failed(error: ClientError) -> Error {
    let store = store();
    match error {
        ClientError::Refused { code: ErrorCode::TooLarge, .. } => {
            Error::TooLarge { store, source: error.into() }
        }
        ClientError::Refused { .. } | ClientError::TooMany(_) => {
            Error::Unavailable { store, source: error.into() }
        }
        // A client that is closed while it waits does not learn what happened to its request.
        _ => Error::Unknown { store, source: error.into() },
    }
}
