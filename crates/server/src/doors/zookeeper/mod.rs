//! The ZooKeeper door: ZooKeeper's client protocol, on its own port. The codec and everything else
//! that needs no socket are in the crate `holdfast-zookeeper`.

mod serve;

use super::{Door, DoorSetting};
use crate::tls::Accepting;

pub(super) const DOOR: Door = Door {
    name: "zookeeper",
    clients: "ZooKeeper clients",
    port_above: 2,
    setting: Some(DoorSetting {
        env: "HOLDFAST_ZOOKEEPER",
        help: "Where ZooKeeper clients come in, if not two ports above HTTP: IP:PORT, or off",
    }),
    shown_as: "zookeeper ",
    shown_as_tls: "zookeeper ",
    examples: &[
        "python3 -c \"from kazoo.client import KazooClient as K; k = K('127.0.0.1:{port}'); \
                 k.start(); k.Lock('/seat-12C').acquire(); input('held')\"",
    ],
    tls_examples: &["python3 -c \"from kazoo.client import KazooClient as K; \
         k = K('127.0.0.1:{port}', use_ssl=True, ca='{ca}'); k.start(); \
         k.Lock('/seat-12C').acquire(); input('held')\""],
    accepting: Accepting::Door,
    // Its clients expect a frame, not text.
    needs_tls: b"",
    serve: |opening| Box::pin(serve::serve(opening)),
};
