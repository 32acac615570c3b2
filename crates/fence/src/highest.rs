//! The rule that every fence follows, as a pure function.

use crate::error::Refused;
use crate::token::{Mode, Token};

/// The two numbers that a fence keeps per resource. Neither ever decreases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Highest {
    /// The highest exclusive token seen; 0 if none.
    pub exclusive: u64,
    /// The highest token of either mode seen; 0 if none.
    pub any: u64,
}

impl Highest {
    /// The numbers after this token has passed, or why it is refused.
    ///
    /// An exclusive token passes if it is not lower than either number, a shared one if it is not
    /// lower than the first: readers that share the lock pass in any order.
    pub fn admit(self, resource: &str, token: Token) -> Result<Self, Refused> {
        let number = token.number();
        if number < self.lowest_passing(token.mode()) {
            return Err(Refused { resource: resource.into(), shown: token, highest: self });
        }
        Ok(match token.mode() {
            Mode::Exclusive => Self { exclusive: number, any: number },
            Mode::Shared => Self { any: self.any.max(number), ..self },
        })
    }

    /// The lowest token of this mode that passes.
    pub fn lowest_passing(self, mode: Mode) -> u64 {
        match mode {
            Mode::Exclusive => self.exclusive.max(self.any),
            Mode::Shared => self.exclusive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token() -> impl Strategy<Value = Token> {
        (1..20u64, any::<bool>()).prop_map(|(number, shared)| {
            if shared { Token::shared(number) } else { Token::exclusive(number) }.unwrap()
        })
    }

    proptest! {
        /// Compared to the rule in its plainest form: a list of everything that has ever passed.
        #[test]
        fn token_passes_unless_a_later_conflicting_one_has(shown in prop::collection::vec(token(), 0..40)) {
            let mut passed: Vec<Token> = Vec::new();
            let mut highest = Highest::default();
            for token in shown {
                let later = |other: &Token| {
                    let conflict = [token.mode(), other.mode()].contains(&Mode::Exclusive);
                    conflict && other.number() > token.number()
                };
                let admitted = highest.admit("x", token);
                prop_assert_eq!(admitted.is_ok(), !passed.iter().any(later));
                let Ok(after) = admitted else { continue };
                prop_assert!(after.exclusive >= highest.exclusive && after.any >= highest.any);
                prop_assert!(after.any >= after.exclusive);
                highest = after;
                passed.push(token);
            }
        }
    }
}
