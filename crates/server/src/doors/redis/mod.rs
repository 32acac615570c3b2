//! The Redis door: RESP on its own port. Its codec and translation are in the crate
//! `holdfast-redis`.

mod serve;

use super::{Door, DoorSetting};
use crate::tls::Accepting;

pub(super) const DOOR: Door = Door {
    name: "redis",
    clients: "Redis clients",
    port_above: 1,
    setting: Some(DoorSetting {
        env: "HOLDFAST_REDIS",
        help: "The address for Redis clients: IP:PORT, or off. Default: the next port",
    }),
    shown_as: "redis ",
    shown_as_tls: "rediss ",
    examples: &["redis-cli -p {port} set seat-12B ana nx px 15000"],
    tls_examples: &["redis-cli --tls --cacert {ca} -p {port} set seat-12B ana nx px 15000"],
    accepting: Accepting::Door,
    needs_tls: b"-ERR this port requires TLS: use rediss://, or redis-cli --tls\r\n",
    serve: |opening| Box::pin(serve::serve(opening)),
};
