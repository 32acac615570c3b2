//! Randomness from the operating system, drawn only at the edge.

/// `N` random bytes.
#[allow(clippy::expect_used, reason = "without randomness no secret can be made")]
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    bytes
}

pub(crate) fn number() -> u64 {
    u64::from_le_bytes(bytes())
}
