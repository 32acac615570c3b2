//! The Redis door: RESP on its own port. Its codec and translation are in the crate
//! `holdfast-redis`.

mod serve;

use super::{Door, DoorSetting};

pub(super) const DOOR: Door = Door {
    name: "redis",
    clients: "Redis clients",
    port_above: 1,
    setting: Some(DoorSetting {
        env: "HOLDFAST_REDIS",
        help: "The address for Redis clients: IP:PORT, or off. Default: the next port",
    }),
    shown_as: "redis ",
    examples: &["redis-cli -p {port} set seat-12B ana nx px 15000"],
    serve: |opening| Box::pin(serve::serve(opening)),
};
