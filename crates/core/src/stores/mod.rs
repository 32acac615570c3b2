//! What doors store besides locks. Each store is a module of its own, which knows the lines only
//! through [`StoreAccess`](crate::lines::StoreAccess) and knows no other store.

pub(crate) mod access;
pub(crate) mod keys;
pub(crate) mod tree;
