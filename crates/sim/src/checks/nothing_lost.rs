//! Nothing acknowledged is lost: a client that lets go of a lock while its lease runs is the holder
//! that it was told to be, whoever crashed in between.

use super::Violation;
use crate::client::LetGo;

/// A client heard what became of its release.
pub(crate) fn released(client: usize, let_go: &LetGo) -> Result<(), Violation> {
    match &let_go.refused {
        Some(refusal) if let_go.in_time => Err(format!(
            "nothing lost: client {client} let go of token {} in time and was refused: {refusal:?}",
            let_go.token
        )),
        _ => Ok(()),
    }
}
