//! The fenced register.

use super::Model;
use holdfast_core::{Answer, Bound, Fence, InvalidField, LockName, Mode, Refusal, Token, Value};

impl Model {
    /// Shows a token to the fence, with or without a value to store.
    pub(super) fn show(
        &mut self,
        key: LockName,
        value: Option<Value>,
        token: Token,
        mode: Mode,
    ) -> Result<Answer, Refusal> {
        if token.0 == 0 || token.0 > self.counter {
            return Err(Refusal::NeverDrawn(token));
        }
        let at = self.register.iter().position(|(known, _)| *known == key);
        let mut fence = match at {
            Some(at) => self.register[at].1.clone(),
            None => Fence { highest_exclusive: Token(0), highest: Token(0), value: None },
        };
        let highest = match mode {
            Mode::Exclusive => fence.highest,
            Mode::Shared => fence.highest_exclusive,
            Mode::Permit { .. } => return Err(Refusal::BadRequest(InvalidField::PermitFenced)),
        };
        if token < highest {
            return Err(Refusal::Fenced { token, highest });
        }
        if at.is_none() && self.register.len() >= self.limits.register_keys_max {
            return Err(Refusal::Full(Bound::RegisterKeys));
        }
        if mode == Mode::Exclusive {
            fence.highest_exclusive = token;
        }
        fence.highest = fence.highest.max(token);
        if value.is_some() {
            fence.value = value;
        }
        match at {
            Some(at) => self.register[at].1 = fence.clone(),
            None => self.register.push((key, fence.clone())),
        }
        Ok(Answer::Passed(fence))
    }
}
