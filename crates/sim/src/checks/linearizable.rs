//! The history as clients saw it: numbers are drawn in real time. Whoever asks after somebody was
//! told a number draws a higher one, and a read asked for after that sees at least that number.

use super::Violation;
use holdfast_core::Token;

#[derive(Debug, Default)]
pub(crate) struct Linearizable {
    told: u64,
}

impl Linearizable {
    pub(crate) fn floor(&self) -> u64 {
        self.told
    }

    pub(crate) fn drew(
        &mut self,
        client: usize,
        token: Token,
        floor: u64,
    ) -> Result<(), Violation> {
        if token.0 <= floor {
            return Err(format!(
                "linearizable: client {client} drew {token}, but {floor} had been told before it asked"
            ));
        }
        self.told = self.told.max(token.0);
        Ok(())
    }

    pub(crate) fn read(&mut self, counter: u64, floor: u64) -> Result<(), Violation> {
        if counter < floor {
            return Err(format!(
                "linearizable: a node read {counter}, but {floor} had been told before it was asked"
            ));
        }
        Ok(())
    }
}
