//! A held lock, identified by its token and secret.

use super::Holdfast;
use super::calls::Calls;
use super::watch::Watcher;
use crate::clock::Moment;
use crate::driver::{Hold, Step, Validity};
use crate::error::Error;
use crate::token::Token;
use bytes::Bytes;
use holdfast_proto::v1 as proto;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Reported as the lease of a ticket that someone has made permanent.
const ENDLESS: Duration = Duration::from_secs(366 * 24 * 60 * 60);

pub(super) struct HoldfastHold {
    calls: Arc<Calls>,
    own: proto::TicketRef,
    /// `None` for a lease that was handed over: other processes may have its proof too, and may
    /// have released it.
    watcher: Option<Watcher>,
    /// Until when a renewal that got no reply may still take effect.
    renewed_late: Mutex<Option<Moment>>,
}

/// How long a renewal that got no reply may still be on its way to a server.
const IN_FLIGHT: Duration = Duration::from_secs(5);

impl HoldfastHold {
    /// For a lock that was just taken.
    pub(super) fn new(engine: &Holdfast, name: &str, token: Token, secret: &[u8]) -> Self {
        let (own, calls) = (own(name, token, secret), engine.calls.clone());
        let watcher = Watcher::start(engine.client.clone(), calls.clone(), own.clone());
        Self { calls, own, watcher: Some(watcher), renewed_late: Mutex::default() }
    }

    /// Parses a proof: `TOKEN:SECRET`, the secret in hex.
    pub(super) fn of_proof(calls: &Arc<Calls>, name: &str, proof: &str) -> Result<Self, Error> {
        let parsed = proof
            .split_once(':')
            .and_then(|(token, secret)| Some((token.parse().ok()?, from_hex(secret)?)));
        let Some((token, secret)) = parsed else {
            let why =
                "the proof is not one of a Holdfast lease: was it detached from another engine?";
            return Err(Error::Unsupported(why.to_owned()));
        };
        let own = own(name, Token::new(token), &secret);
        Ok(Self { calls: calls.clone(), own, watcher: None, renewed_late: Mutex::default() })
    }
}

impl HoldfastHold {
    fn renewed_late(&self) -> MutexGuard<'_, Option<Moment>> {
        self.renewed_late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn own(name: &str, token: Token, secret: &[u8]) -> proto::TicketRef {
    let (name, secret) = (Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(secret));
    proto::TicketRef { name, token: token.get(), secret }
}

/// How long the server will keep the lease if nobody extends it.
pub(super) async fn check(calls: &Calls, own: &proto::TicketRef) -> Result<Duration, Error> {
    let lock = calls.show(&own.name).await?;
    let ours = lock.holders.iter().find(|holder| holder.token == own.token);
    let over = || Error::NotHeld("the lease has run out or was released".to_owned());
    let ends_in = ours.ok_or_else(over)?.ends_in_ms;
    Ok(ends_in.map_or(ENDLESS, Duration::from_millis))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits.filter(|digits| !digits.is_empty() && digits.len() % 2 == 0)?;
    Some(
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte * 16 + digit)).collect(),
    )
}

impl Hold for HoldfastHold {
    fn extend(&self, ttl: Duration) -> Step<'_, Validity> {
        Box::pin(async move {
            let sent = Moment::now();
            // Set first: this future may be dropped at any await.
            self.renewed_late().replace(sent.plus(self.calls.renewal_limit(ttl) + IN_FLIGHT));
            self.calls.renew(&self.own, ttl).await?;
            Ok(Validity::of_ttl(sent, ttl))
        })
    }

    fn release(&self) -> Step<'_, ()> {
        Box::pin(async move {
            // The server also says yes to a repeated release, so check that the lease still exists.
            if self.watcher.is_none() {
                self.check().await?;
            }
            self.calls.release(&self.own).await
        })
    }

    fn settle(&self) -> Step<'_, Option<Moment>> {
        let late = self.renewed_late().filter(|late| !late.has_passed());
        Box::pin(std::future::ready(Ok(late)))
    }

    fn check(&self) -> Step<'_, Duration> {
        Box::pin(check(&self.calls, &self.own))
    }

    fn proof(&self) -> Option<String> {
        let secret: String = self.own.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(format!("{}:{secret}", self.own.token))
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(async {
            match &self.watcher {
                Some(watcher) => watcher.ended().await,
                None => std::future::pending().await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_survives_conversion_to_hex() {
        assert_eq!(from_hex("00ff10").as_deref(), Some(&[0, 255, 16][..]));
        for bad in ["", "0", "0g", "äö"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }
}
