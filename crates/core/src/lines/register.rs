//! The fence inside Holdfast: a register that refuses old tokens.
//!
//! It keeps two numbers per key, the highest exclusive token and the highest of any mode. An
//! exclusive token passes if it is not below either, a shared one if it is not below the first.

use super::Lines;
use super::records::{Register, weight_of};
use crate::command::Mode;
use crate::containers::Slot;
use crate::effect::{Answer, Fence};
use crate::ids::Token;
use crate::refusal::{Bound, InvalidField, Refusal};
use crate::text::{LockName, Value};
use crate::weight::Weight;

impl Lines {
    pub(crate) fn put(
        &mut self,
        key: LockName,
        value: Value,
        token: Token,
        mode: Mode,
    ) -> Result<Answer, Refusal> {
        let slot = self.check_fence(&key, Some(&value), token, mode)?;
        Ok(self.pass(slot, key, Some(value), token, mode))
    }

    pub(crate) fn raise(
        &mut self,
        key: LockName,
        token: Token,
        mode: Mode,
    ) -> Result<Answer, Refusal> {
        let slot = self.check_fence(&key, None, token, mode)?;
        Ok(self.pass(slot, key, None, token, mode))
    }

    /// The fence of a key.
    pub(crate) fn fence(&self, key: &LockName) -> Option<&Fence> {
        let slot = self.index.register.get(&self.data.register, key)?;
        self.data.register.get(slot).map(|register| &register.fence)
    }

    fn check_fence(
        &self,
        key: &LockName,
        value: Option<&Value>,
        token: Token,
        mode: Mode,
    ) -> Result<Option<Slot>, Refusal> {
        if token.0 == 0 || token.0 > self.data.counter {
            return Err(Refusal::NeverDrawn(token));
        }
        let slot = self.index.register.get(&self.data.register, key);
        let (lowest, new_key) = match slot.and_then(|slot| self.data.register.get(slot)) {
            Some(Register { fence, .. }) => (fence.lowest_passing(mode)?, 0),
            None => (Fence::new().lowest_passing(mode)?, key.as_bytes().len()),
        };
        if token < lowest {
            return Err(Refusal::Fenced { token, highest: lowest });
        }
        if slot.is_none() && self.data.register.len() >= self.limits.register_keys_max {
            return Err(Refusal::Full(Bound::RegisterKeys));
        }
        self.check_bytes(Weight::texts(weight_of(value).saturating_add(new_key)))?;
        Ok(slot)
    }

    fn pass(
        &mut self,
        slot: Option<Slot>,
        key: LockName,
        value: Option<Value>,
        token: Token,
        mode: Mode,
    ) -> Answer {
        let slot = slot.unwrap_or_else(|| {
            let register = Register { key, fence: Fence::new() };
            self.weigh_change(Weight::NONE, register.weight());
            let slot = self.data.register.insert(register);
            self.index.register.insert(&self.data.register, slot);
            slot
        });
        let Some(register) = self.data.register.get_mut(slot) else {
            return Answer::Passed(Fence::new());
        };
        let before = register.weight();
        let fence = &mut register.fence;
        fence.highest = fence.highest.max(token);
        if mode == Mode::Exclusive {
            fence.highest_exclusive = fence.highest_exclusive.max(token);
        }
        if value.is_some() {
            fence.value = value;
        }
        let (fence, after) = (fence.clone(), register.weight());
        self.weigh_change(before, after);
        Answer::Passed(fence)
    }
}

impl Fence {
    fn new() -> Self {
        Self { highest_exclusive: Token(0), highest: Token(0), value: None }
    }

    /// The lowest token of this mode that is not too old.
    fn lowest_passing(&self, mode: Mode) -> Result<Token, Refusal> {
        match mode {
            Mode::Exclusive => Ok(self.highest.max(self.highest_exclusive)),
            Mode::Shared => Ok(self.highest_exclusive),
            Mode::Permit { .. } => Err(Refusal::BadRequest(InvalidField::PermitFenced)),
        }
    }
}
