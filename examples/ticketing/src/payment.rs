//! The payment service, as a stub: it takes its time, declines now and then, and keeps a ledger in the
//! database. A payment is authorised first, which moves no money, and then captured or voided.

use crate::domain::TicketId;
use crate::store::{Store, StoreError};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct PaymentService {
    pub(crate) store: Arc<Store>,
    pub(crate) delay: Duration,
    /// From 0 to 1.
    pub(crate) failure_rate: f64,
}

/// An authorised payment. What becomes of one whose instance dies, [`Store::settle_payments`] decides.
pub(crate) struct Authorised {
    pub(crate) key: String,
}

impl PaymentService {
    /// Reserves the money; `None` if the payment is declined.
    pub(crate) async fn authorise(
        &self,
        ticket: TicketId,
        client: &str,
        number: i64,
    ) -> Result<Option<Authorised>, StoreError> {
        tokio::time::sleep(self.delay).await;
        if crate::random_share() < self.failure_rate {
            return Ok(None);
        }
        let key = crate::random_hex();
        self.store.add_payment(&key, ticket, client, number).await?;
        Ok(Some(Authorised { key }))
    }

    /// Takes the money, if the sale was written.
    pub(crate) async fn capture(&self, payment: &Authorised) {
        let done = self.store.capture_payment(&payment.key).await;
        self.or_later(payment, "captured", done);
    }

    /// Gives the money free again, unless the sale was written.
    pub(crate) async fn void(&self, payment: &Authorised) {
        let done = self.store.void_payment(&payment.key).await;
        self.or_later(payment, "voided", done);
    }

    fn or_later(&self, payment: &Authorised, state: &str, done: Result<(), StoreError>) {
        if let Err(error) = done {
            tracing::warn!("payment {} is to be {state}, and will be later: {error}", payment.key);
        }
    }
}
