//! The containers that the state consists of. They make no decisions.

mod index;
mod order;
mod slab;

pub(crate) use index::{Index, Keyed};
pub(crate) use order::NameOrder;
pub(crate) use slab::{Slab, Slot};
