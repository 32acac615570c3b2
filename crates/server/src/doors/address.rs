//! Where doors listen.

use super::Door;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Where a door listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DoorAddress {
    /// At the address that the node listens on, so many ports above the base port.
    #[default]
    Usual,
    /// There.
    At(SocketAddr),
    /// Nowhere.
    Off,
}

impl FromStr for DoorAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        let wrong = |_| format!("`{text}` is no address: write IP:PORT, or off");
        text.parse().map(Self::At).map_err(wrong)
    }
}

impl fmt::Display for DoorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str("the next port"),
            Self::At(address) => address.fmt(f),
            Self::Off => f.write_str("off"),
        }
    }
}

/// Where each door listens: those that are not named, at their usual place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DoorAddresses(BTreeMap<&'static str, DoorAddress>);

impl DoorAddresses {
    /// These, but for one door.
    #[must_use]
    pub fn with(mut self, door: &str, address: DoorAddress) -> Self {
        let door = super::DOORS.iter().find(|known| known.name == door && known.setting.is_some());
        if let Some(door) = door {
            self.0.insert(door.name, address);
        }
        self
    }

    /// Where a door listens.
    pub fn of(&self, door: &Door) -> DoorAddress {
        self.0.get(door.name).copied().unwrap_or_default()
    }

    /// The address of a door of a node that listens there; none if the door is closed.
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
