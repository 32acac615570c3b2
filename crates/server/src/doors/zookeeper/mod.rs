//! The ZooKeeper door: its client protocol on its own port. The codec and everything that needs no
//! socket are in the crate `holdfast-zookeeper`.

mod serve;

use super::{Door, DoorSetting};

pub(super) const DOOR: Door = Door {
    name: "zookeeper",
    clients: "ZooKeeper clients",
    port_above: 2,
    setting: Some(DoorSetting {
        env: "HOLDFAST_ZOOKEEPER",
        help: "Where ZooKeeper clients come in, if not two ports above HTTP: IP:PORT, or off",
    }),
    shown_as: "zookeeper ",
    examples: &[
        "python3 -c \"from kazoo.client import KazooClient as K; k = K('127.0.0.1:{port}'); \
                 k.start(); k.Lock('/seat-12C').acquire(); input('held')\"",
    ],
    serve: |opening| Box::pin(serve::serve(opening)),
};
