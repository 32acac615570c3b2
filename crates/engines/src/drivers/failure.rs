//! A failed request, and whether it certainly had no effect.

use crate::error::Error;

#[derive(Debug)]
pub(super) enum Failure {
    /// It certainly has no effect.
    Definite(Error),
    /// It may have taken effect, or may still do so.
    Ambiguous(Error),
}

impl Failure {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Definite(error) | Self::Ambiguous(error) => error,
        }
    }
}
