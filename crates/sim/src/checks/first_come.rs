//! First come, first served: whoever is granted leaves nobody with a lower number behind.

use super::{Applied, Violation};
use holdfast_core::Effect;

pub(crate) fn applied(applied: &Applied<'_>) -> Result<(), Violation> {
    for effect in applied.effects {
        let Effect::Granted(grant) = effect else { continue };
        for name in grant.names.as_slice() {
            let line = applied.state.lock_view(name, 1);
            let first = line.and_then(|line| line.waiters.first().map(|waiter| waiter.token));
            if let Some(first) = first.filter(|first| *first < grant.token) {
                return Err(format!(
                    "first come: {name} {} was served before {first}",
                    grant.token
                ));
            }
        }
    }
    Ok(())
}
