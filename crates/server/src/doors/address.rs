//! The addresses that doors listen on.

use super::Door;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The address that a door listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DoorAddress {
    /// The node's listen address, on the door's default port.
    #[default]
    Usual,
    /// This address.
    At(SocketAddr),
    /// None: the door is disabled.
    Off,
}

impl FromStr for DoorAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        let wrong = |_| format!("`{text}` is not an address: write IP:PORT, or off");
        text.parse().map(Self::At).map_err(wrong)
    }
}

impl fmt::Display for DoorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str("the default port"),
            Self::At(address) => address.fmt(f),
            Self::Off => f.write_str("off"),
        }
    }
}

/// The address of each door; a door that is not listed uses its default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DoorAddresses(BTreeMap<&'static str, DoorAddress>);

impl DoorAddresses {
    /// Only the door that can't be disabled is open.
    pub fn all_off() -> Self {
        let settable = super::DOORS.iter().filter(|door| door.setting.is_some());
        Self(settable.map(|door| (door.name, DoorAddress::Off)).collect())
    }

    /// Sets the address of one door. Unknown doors, and doors that can't be moved, are ignored.
    #[must_use]
    pub fn with(mut self, door: &str, address: DoorAddress) -> Self {
        let door = super::DOORS.iter().find(|known| known.name == door && known.setting.is_some());
        if let Some(door) = door {
            self.0.insert(door.name, address);
        }
        self
    }

    /// The configured address of a door.
    pub fn of(&self, door: &Door) -> DoorAddress {
        self.0.get(door.name).copied().unwrap_or_default()
    }

    /// The socket address of a door on a node with this listen address and base port; `None` if the
    /// door is disabled.
    pub fn resolve(&self, door: &Door, listen: IpAddr, port: u16) -> Option<SocketAddr> {
        match self.of(door) {
            DoorAddress::Off => None,
            DoorAddress::At(address) => Some(address),
            DoorAddress::Usual => {
                Some(SocketAddr::new(listen, port.saturating_add(door.port_above)))
            }
        }
    }
}
