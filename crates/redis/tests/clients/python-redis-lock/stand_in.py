"""Looks like `redis-server --unixsocket PATH` to the tests of python-redis-lock: an empty server of
their own. It passes everything on to HOLDFAST_DOOR, a host and a port.

The tests wait two seconds for it, so it needs little to start.
"""

import os
import socket
import sys
import threading

PATH = sys.argv[sys.argv.index("--unixsocket") + 1]
HOST, PORT = os.environ["HOLDFAST_DOOR"].rsplit(":", 1)


def connect():
    return socket.create_connection((HOST, int(PORT)))


def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    # Both ways end together.
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


with connect() as server:
    server.sendall(b"FLUSHALL\r\n")
    answer = server.recv(100)
    assert answer == b"+OK\r\n", answer

# One that was killed leaves its path behind.
if os.path.exists(PATH):
    os.unlink(PATH)
listener = socket.socket(socket.AF_UNIX)
listener.bind(PATH)
listener.listen(512)
print("Ready to accept connections", flush=True)
while True:
    client, _ = listener.accept()
    server = connect()
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for ends in ((client, server), (server, client)):
        threading.Thread(target=copy, args=ends, daemon=True).start()
