//! Ports on loopback that nobody else uses, not even another test process on this machine.

use std::net::{Ipv4Addr, TcpListener};

/// Below the range of ephemeral ports.
const FIRST: u16 = 10_000;
const BLOCK: u16 = 1_000;
const BLOCKS: u16 = 22;

/// A block of ports, reserved as long as this exists.
pub(crate) struct Ports {
    base: u16,
    /// Whoever holds the last port of a block has the block.
    _reserved: TcpListener,
}

impl Ports {
    pub(crate) fn reserve() -> Self {
        let offset = (std::process::id() % u32::from(BLOCKS)) as u16;
        let bases = (0..BLOCKS).map(|at| FIRST + BLOCK * ((at + offset) % BLOCKS));
        let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
        bases
            .filter_map(|base| Some(Self { base, _reserved: free(base + BLOCK - 1)? }))
            .find(|ports| {
                (1..=9)
                    .all(|k| [0, 1, 2, 10].iter().all(|above| free(ports.of(k) + above).is_some()))
            })
            .expect("no free block of ports below 32000")
    }

    /// The HTTP port of the first node.
    pub(crate) fn base(&self) -> u16 {
        self.base
    }

    /// The HTTP port of the k-th node, as chosen by `holdfast dev`.
    pub(crate) fn of(&self, k: u16) -> u16 {
        self.base + 100 * (k - 1)
    }
}

/// The peer address of the node with this HTTP port.
pub(crate) fn peer_address(port: u16) -> String {
    format!("127.0.0.1:{}", port + 10)
}
