//! Everyone in the bakery: the lowest number holds the lock, the others wait.

use super::tables::Tables;
use crate::driver::label_of;
use crate::drivers::failure::Failure;
use crate::error::Error;
use crate::locks::Inspection;

pub(super) async fn inspect(tables: &Tables, name: &str) -> Result<Option<Inspection>, Error> {
    let customers = tables.customers(name).await.map_err(Failure::into_error)?;
    let mut labels = customers.iter().map(|customer| label_of(&customer.client_id));
    let Some(holder) = labels.next() else { return Ok(None) };
    Ok(Some(Inspection { holder: Some(holder), token: None, line: Some(labels.collect()) }))
}
