//! The containers that the state is made of. Nothing in them decides anything.

mod index;
mod order;
mod slab;

pub(crate) use index::{Index, Keyed};
pub(crate) use order::NameOrder;
pub(crate) use slab::{Slab, Slot};
