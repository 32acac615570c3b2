//! The fenced register: a value that only the newest holder can write.

use crate::client::Client;
use crate::driver::Answer;
use crate::error::Error;
use crate::guard::Guard;
use crate::token::Token;
use bytes::Bytes;
use holdfast_proto::v1::{self as proto, request, to_client};

/// The content of a key of the register.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// let guard = client.lock("ledger").acquire().await?;
/// let fence = client.register("ledger").put("balance 40", &guard).await?;
/// assert_eq!(fence.highest, guard.token());
/// assert_eq!(fence.value, Some("balance 40".into()));
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fence {
    /// The highest exclusive token seen.
    pub highest_exclusive: Token,
    /// The highest token of any mode seen.
    pub highest: Token,
    /// The value of the last write; `None` if there was none.
    pub value: Option<Bytes>,
}

impl From<proto::Fence> for Fence {
    fn from(fence: proto::Fence) -> Self {
        let proto::Fence { highest_exclusive, highest, value } = fence;
        Self {
            highest_exclusive: Token::new(highest_exclusive),
            highest: Token::new(highest),
            value,
        }
    }
}

/// One key of the fenced register, which refuses tokens older than the newest it has seen.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.rs"));
/// # fn main() { with_server(async |servers| {
/// # let client = Client::connect(&servers).await?;
/// let register = client.register("ledger");
/// let guard = client.lock("ledger").acquire().await?;
/// // A new holder shows its token before it relies on the value: older ones can't write any more.
/// let fence = register.raise(&guard).await?;
/// assert_eq!(fence.value, None);
/// register.put("balance 40", &guard).await?;
/// assert_eq!(register.get().await?.value.as_deref(), Some(&b"balance 40"[..]));
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone)]
pub struct Register {
    client: Client,
    key: Bytes,
}

impl Register {
    pub(crate) fn new(client: Client, key: Bytes) -> Self {
        Self { client, key }
    }

    /// Writes a value. If a later holder's token has been seen, the error has code
    /// [`ErrorCode::Fenced`](crate::ErrorCode::Fenced).
    pub async fn put(&self, value: impl AsRef<[u8]>, holder: &Guard) -> Result<Fence, Error> {
        let put = proto::PutRequest {
            key: self.key.clone(),
            value: Bytes::copy_from_slice(value.as_ref()),
            token: holder.token().get(),
            mode: holder.mode().into(),
        };
        self.through(request::What::Put(put)).await
    }

    /// Shows the token to the fence and reads the value. A new holder does this before it relies on
    /// the value. From then on, earlier holders can't write.
    pub async fn raise(&self, holder: &Guard) -> Result<Fence, Error> {
        let (token, mode) = (holder.token().get(), holder.mode().into());
        let raise = proto::RaiseRequest { key: self.key.clone(), token, mode };
        self.through(request::What::Raise(raise)).await
    }

    async fn through(&self, what: request::What) -> Result<Fence, Error> {
        let room = self.client.room_for_request()?;
        match self.client.ask(what, room).await? {
            Answer::Reply(to_client::What::Fence(fence)) => Ok(fence.into()),
            _ => Err(Error::SessionLost),
        }
    }

    /// Reads without a token: fine for display, not for decisions.
    pub async fn get(&self) -> Result<Fence, Error> {
        let get = proto::GetRequest { key: self.key.clone() };
        let call = async |mut server: crate::calls::Server, request| server.get(request).await;
        let reply = self.client.calls().call(get, call).await?;
        Ok(reply.fence.map(Fence::from).unwrap_or_default())
    }
}
