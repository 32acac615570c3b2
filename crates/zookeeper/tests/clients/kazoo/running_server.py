"""A pytest plugin: kazoo's tests use a running server instead of starting Java servers.

ZOOKEEPER_ADDRESSES has its addresses, `host:port`, separated by commas. Node 0 is behind a proxy,
because some tests stop and restart it: the proxy drops its connections, and accepts no new ones.
"""

import os
import socket
import sys
import threading
import types

import pytest

ADDRESSES = os.environ["ZOOKEEPER_ADDRESSES"].split(",")
# For tests that are skipped depending on the server's version.
os.environ.setdefault("ZOOKEEPER_VERSION", "3.8.0")

# Tests that fail on any server that kazoo did not start itself.
NEEDS_OWN_SERVERS = {
    "TestSSLClient::test_create": "the server was started without TLS",
    "TestReconfig::test_no_super_auth": "standalone servers and Holdfast have no reconfig",
    "TestReconfig::test_add_remove_observer": "standalone servers and Holdfast have no reconfig",
    "TestReconfig::test_bad_input": "standalone servers and Holdfast have no reconfig",
    "TestReadOnlyMode::test_read_only": "a majority would have to stop for good",
}

# Tests that pass on ZooKeeper and fail on Holdfast.
HOLDFAST_DIFFERS = {
    "TestClient::test_create_large_value": "data, path and access control list have 512 KiB together",
}


class Node:
    """One server. It is never stopped: tests stop only the first one, which is a proxy."""

    running = True

    def __init__(self, address):
        self.address = address


class Proxy(Node):
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.target = (host, int(port))
        self.lock, self.ends, self.listener = threading.Lock(), set(), None
        with socket.create_server(("127.0.0.1", 0)) as first:
            self.port = first.getsockname()[1]
        super().__init__(f"127.0.0.1:{self.port}")
        self.run()

    def run(self):
        if self.listener is None:
            self.listener = socket.create_server(("127.0.0.1", self.port), backlog=512)
            threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def stop(self):
        with self.lock:
            listener, self.listener = self.listener, None
            ends = list(self.ends)
        for end in [listener, *ends]:
            shut(end)
        listener.close()

    def accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(self.target)
            except OSError:
                return
            with self.lock:
                if self.listener is not listener:
                    client.close()
                    server.close()
                    return
                self.ends |= {client, server}
            for source, target in ((client, server), (server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.copy, args=(source, target), daemon=True).start()

    def copy(self, source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        shut(target)
        with self.lock:
            self.ends.discard(source)
        source.close()


def shut(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


class RunningCluster:
    """Replaces kazoo.testing.common.ZookeeperCluster."""

    def __init__(self, **settings):
        # Tests expect three servers, so one may be listed more than once.
        addresses = (ADDRESSES * 3)[:3]
        self.nodes = [Proxy(addresses[0]), *map(Node, addresses[1:])]

    def __getitem__(self, index):
        return self.nodes[index]

    def __iter__(self):
        return iter(self.nodes)

    def start(self):
        pass

    def terminate(self):
        pass

    def get_logs(self):
        return []


# Replaces the whole module, which would import packages for making certificates.
common = types.ModuleType("kazoo.testing.common")
common.ZookeeperCluster = RunningCluster
sys.modules["kazoo.testing.common"] = common


def pytest_collection_modifyitems(items):
    expected = dict(NEEDS_OWN_SERVERS)
    if os.environ.get("ZOOKEEPER_IS_HOLDFAST"):
        expected |= HOLDFAST_DIFFERS
    for item in items:
        reason = expected.get("::".join(item.nodeid.split("::")[-2:]))
        if reason:
            # Strict: if one passes after all, it fails, and its entry above must be removed.
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
