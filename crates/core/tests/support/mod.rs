//! The core's oracle: random moves, a player that turns them into commands, a naive model that must
//! agree with every answer, and promises that must hold whatever the model says.

pub(crate) mod cases;
pub(crate) mod compare;
pub(crate) mod model;
pub(crate) mod moves;
pub(crate) mod player;
pub(crate) mod promises;
pub(crate) mod run;
pub(crate) mod stamps;
