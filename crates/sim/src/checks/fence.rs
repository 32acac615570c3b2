//! The fence refuses old tokens: a write that is asked for after a later token was taken does not pass.

use super::Violation;
use holdfast_core::{LockName, Token};

/// A register took a token; `floor` was the highest that it was known to have taken when this was asked.
pub(crate) fn passed(key: &LockName, token: Token, floor: Token) -> Result<(), Violation> {
    if token < floor {
        return Err(format!("fence: {key} took token {token} after {floor}"));
    }
    Ok(())
}
