"""Records conversations with a real ZooKeeper, which tests/replay.rs replays against Holdfast.

    record.py PORT FOLDER

PORT is a ZooKeeper 3.8 on this machine; kazoo 2.11 must be installed. Each conversation becomes
a file in FOLDER with a line for each frame: `a > ...` for one that client a sends, `a < ...` for one
that it receives, in hexadecimal and without the length.
"""

import socket
import struct
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.protocol import serialization as s
from kazoo.security import OPEN_ACL_UNSAFE

PORT = int(sys.argv[1])
FOLDER = sys.argv[2]
ACL = OPEN_ACL_UNSAFE


def text(value):
    value = value.encode()
    return struct.pack("!i", len(value)) + value


def texts(values):
    return struct.pack("!i", len(values)) + b"".join(text(value) for value in values)


class Recording:
    def __init__(self, name, story):
        self.file = open(f"{FOLDER}/{name}.txt", "w")
        self.file.write(f"# {story}\n")
        self.lock = threading.Lock()

    def note(self, client, direction, frame):
        with self.lock:
            self.file.write(f"{client} {direction} {frame.hex()}\n")

    def end(self):
        with self.lock:
            self.file.close()


class Client:
    """A client that sends and receives single frames."""

    def __init__(self, recording, name, session=0, password=b"\0" * 16, zxid=0, read_only=True):
        self.recording, self.name, self.xid = recording, name, 0
        self.socket = socket.create_connection(("127.0.0.1", PORT))
        frame = struct.pack("!iqiq", 0, zxid, 6000, session) + struct.pack("!i", 16) + password
        if read_only:
            frame += b"\0"
        self.send(frame)
        answer = self.receive()
        self.session = struct.unpack("!q", answer[8:16])[0]
        self.password = answer[20:36]

    def send(self, frame):
        self.recording.note(self.name, ">", frame)
        self.socket.sendall(struct.pack("!i", len(frame)) + frame)

    def receive(self):
        frame = self.read()
        self.recording.note(self.name, "<", frame)
        return frame

    def read(self):
        head = self.exactly(4)
        return self.exactly(struct.unpack("!i", head)[0])

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def ask(self, op, body=b"", xid=None):
        if xid is None:
            self.xid += 1
            xid = self.xid
        self.send(struct.pack("!ii", xid, op) + body)
        while struct.unpack("!i", self.receive()[:4])[0] != xid:
            pass
        # Other clients must receive the resulting events first.
        time.sleep(0.05)

    def do(self, request):
        self.ask(request.type, bytes(request.serialize()))

    def events(self, count):
        for _ in range(count):
            self.receive()

    def close(self):
        self.ask(-11)
        self.socket.close()


def tree(recording):
    a = Client(recording, "a")
    b = Client(recording, "b", read_only=False)
    a.do(s.GetChildren2("/", None))
    a.do(s.Exists("/zookeeper/config", None))
    a.do(s.GetData("/zookeeper/config", None))
    a.do(s.GetACL("/zookeeper/config"))
    a.do(s.SetData("/zookeeper/config", b"x", -1))
    a.do(s.Delete("/zookeeper", -1))
    a.do(s.Delete("/zookeeper/quota", -1))
    a.do(s.Delete("/", -1))
    a.do(s.Create("/", b"", ACL, 0))
    a.do(s.Create("/t", b"one", ACL, 0))
    a.do(s.Create("/t", b"one", ACL, 0))
    a.do(s.Create2("/t/x", b"", ACL, 0))
    a.do(s.Create("/nowhere/x", b"", ACL, 0))
    for bad in ["t", "", "/t/", "/t//y", "/t/.", "/t/..", "/t/\u0001", "/t/\ue000", "/t/\U0001f600"]:
        a.do(s.Create(bad, b"", ACL, 0))
    a.do(s.Create("/t/\u00e4\u4e2d", b"", ACL, 0))
    a.do(s.SetData("/t", b"two", 0))
    a.do(s.SetData("/t", b"three", 0))
    a.do(s.SetData("/t", b"three", -1))
    a.do(s.SetData("/nowhere", b"", -1))
    b.do(s.GetData("/t", None))
    b.do(s.Exists("/nowhere", None))
    b.do(s.GetData("/nowhere", None))
    b.do(s.GetChildren("/nowhere", None))
    a.do(s.Delete("/t", -1))
    a.do(s.Delete("/t/x", 7))
    a.do(s.Delete("/t/x", 0))
    a.do(s.Delete("/t/x", -1))
    a.do(s.Sync("/t"))
    b.do(s.GetChildren2("/t", None))
    a.ask(103, text("/"))
    a.ask(104, text("/t"))
    a.ask(107)
    b.close()
    a.close()


def sequences(recording):
    a, b = Client(recording, "a"), Client(recording, "b")
    a.do(s.Create("/s", b"", ACL, 0))
    a.do(s.Create("/s/", b"", ACL, 2))
    a.do(s.Create("/s/e-", b"mine", ACL, 3))
    a.do(s.Create("/s/plain", b"", ACL, 0))
    b.do(s.Create("/s/e-", b"", ACL, 3))
    b.do(s.Create("/s/alive", b"", ACL, 1))
    b.do(s.Create("/s/alive/child", b"", ACL, 0))
    a.do(s.Delete("/s/plain", -1))
    a.do(s.Create("/s/e-", b"", ACL, 2))
    a.do(s.GetChildren2("/s", None))
    b.do(s.Exists("/s/alive", None))
    b.ask(103, text("/s/a"))
    b.ask(103, text("/"))
    a.do(s.GetChildren("/s", True))
    a.do(s.Exists("/s/alive", True))
    b.close()
    a.events(2)
    a.do(s.GetChildren2("/s", None))
    a.ask(19, text("/s/c") + struct.pack("!i", 0) + acl(ACL) + struct.pack("!i", 4))
    a.do(s.Exists("/s/c", None))
    a.ask(1, text("/s/odd") + struct.pack("!i", -1) + acl(ACL) + struct.pack("!i", 0))
    a.do(s.GetData("/s/odd", None))
    a.close()


def acl(entries):
    data = struct.pack("!i", len(entries))
    for entry in entries:
        data += struct.pack("!i", entry.perms) + text(entry.id.scheme) + text(entry.id.id)
    return data


def watches(recording):
    a, b = Client(recording, "a"), Client(recording, "b")
    a.do(s.Exists("/w", True))
    b.do(s.Create("/w", b"", ACL, 0))
    a.events(1)
    a.do(s.GetData("/w", True))
    a.do(s.GetChildren("/w", True))
    a.do(s.SetData("/w", b"own", -1))
    b.do(s.Create("/w/x", b"", ACL, 0))
    a.events(1)
    b.do(s.Create("/w/y", b"", ACL, 0))
    a.do(s.GetChildren("/w/y", True))
    a.do(s.GetData("/w/y", True))
    b.do(s.Delete("/w/y", -1))
    a.events(1)
    a.ask(106, text("/w") + struct.pack("!i", 0))
    b.do(s.SetData("/w", b"1", -1))
    a.events(1)
    b.do(s.Create("/w/z", b"", ACL, 0))
    a.events(1)
    b.do(s.SetData("/w/z", b"1", -1))
    b.do(s.SetData("/w", b"2", -1))
    a.events(1)
    a.ask(18, text("/w") + struct.pack("!i", 3))
    a.ask(18, text("/w") + struct.pack("!i", 3))
    a.ask(106, text("/w") + struct.pack("!i", 1))
    b.do(s.SetData("/w/z", b"2", -1))
    a.events(1)
    b.do(s.Create("/w/z/deep", b"", ACL, 0))
    a.events(1)
    b.do(s.Delete("/w/z/deep", -1))
    a.events(1)
    a.do(s.GetData("/w/x", True))
    a.ask(17, text("/w/x") + struct.pack("!i", 2))
    a.ask(17, text("/w/x") + struct.pack("!i", 1))
    a.ask(18, text("/w/x") + struct.pack("!i", 2))
    a.close()
    # Restored watches from another connection: events for what has changed are sent at once.
    c = Client(recording, "c")
    c.ask(101, struct.pack("!q", 0) + texts(["/w", "/gone"]) + texts(["/w/x", "/never"]) + texts(["/w", "/gone2"]), -8)
    zxid = 1 << 60
    c.ask(105, struct.pack("!q", zxid) + texts(["/w"]) + texts([]) + texts(["/w"]) + texts(["/w/x"]) + texts([]), -8)
    b.do(s.SetData("/w", b"3", -1))
    c.events(1)
    b.do(s.SetData("/w/x", b"3", -1))
    c.events(1)
    b.do(s.Create("/never", b"", ACL, 0))
    c.events(1)
    b.do(s.Create("/w/last", b"", ACL, 0))
    c.events(1)
    c.close()
    b.close()


def multi(ops):
    data = b""
    for op in ops:
        data += struct.pack("!i?i", op.type, False, -1) + bytes(op.serialize())
    return data + struct.pack("!i?i", -1, True, -1)


def multis(recording):
    a = Client(recording, "a")
    a.ask(14, multi([s.Create("/m", b"", ACL, 0), s.Create("/m/x-", b"", ACL, 2), s.Create("/m/x-", b"", ACL, 2)]))
    a.ask(14, multi([s.CheckVersion("/m", 0), s.SetData("/m", b"1", 0), s.Delete("/m/x-0000000000", -1)]))
    a.do(s.Exists("/m", None))
    a.ask(14, multi([s.SetData("/m", b"2", 1), s.Create("/m", b"", ACL, 0), s.Delete("/m", -1)]))
    a.ask(14, multi([s.Create("/m/e", b"", ACL, 1), s.Create("/m/e/child", b"", ACL, 0)]))
    a.ask(14, multi([s.CheckVersion("/m", 9)]))
    a.ask(14, multi([]))
    a.do(s.GetData("/m", None))
    reads = b""
    for op, path in [(8, "/m"), (4, "/m"), (4, "/nowhere"), (8, "/nowhere")]:
        reads += struct.pack("!i?i", op, False, -1) + text(path) + b"\0"
    a.ask(22, reads + struct.pack("!i?i", -1, True, -1))
    a.close()


def acls(recording):
    a, b = Client(recording, "a"), Client(recording, "b")
    a.ask(1, text("/acl") + struct.pack("!i", 0) + struct.pack("!ii", 1, 31) + text("auth") + text("") + struct.pack("!i", 0))
    a.ask(1, text("/acl") + struct.pack("!i", 0) + struct.pack("!i", 0) + struct.pack("!i", 0))
    a.ask(1, text("/acl") + struct.pack("!i", 0) + struct.pack("!ii", 1, 31) + text("nosuch") + text("x") + struct.pack("!i", 0))
    a.ask(100, struct.pack("!i", 0) + text("digest") + text("ana:secret"), -4)
    a.ask(107)
    a.ask(1, text("/acl") + struct.pack("!i", 0) + struct.pack("!ii", 1, 31) + text("auth") + text("") + struct.pack("!i", 0))
    a.do(s.GetACL("/acl"))
    b.do(s.GetACL("/acl"))
    b.do(s.GetData("/acl", None))
    b.do(s.Exists("/acl", None))
    b.do(s.SetData("/acl", b"", -1))
    b.do(s.Create("/acl/x", b"", ACL, 0))
    b.do(s.SetACL("/acl", ACL, -1))
    a.do(s.Create("/acl/x", b"", ACL, 0))
    b.do(s.Delete("/acl/x", -1))
    b.do(s.GetChildren("/acl", None))
    a.do(s.SetACL("/acl", ACL, 7))
    a.ask(7, text("/acl") + struct.pack("!i", 2) + struct.pack("!i", 31) + text("ip") + text("127.0.0.0/8") + struct.pack("!i", 1) + text("world") + text("anyone") + struct.pack("!i", 0))
    b.do(s.GetACL("/acl"))
    b.do(s.Delete("/acl/x", -1))
    b.do(s.Delete("/acl", -1))
    a.close()
    b.close()


def sessions(recording):
    a = Client(recording, "a")
    a.do(s.Create("/alive", b"", ACL, 1))
    a.ask(11, b"", -2)
    again = Client(recording, "b", a.session, a.password)
    again.do(s.Exists("/alive", None))
    again.do(s.SetData("/alive", b"still", -1))
    Client(recording, "c", 0x1234, b"x" * 16).socket.close()
    again.close()
    Client(recording, "d", again.session, again.password).socket.close()
    # ZooKeeper closes the session's other connection before it checks the password.
    other = Client(recording, "e")
    Client(recording, "f", other.session, b"x" * 16).socket.close()


class Proxy:
    """A proxy between kazoo and the server. Each connection becomes a client of the recording."""

    def __init__(self, recording):
        self.recording, self.names = recording, iter("abcdefgh")
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", PORT))
            name = next(self.names)
            for source, sink, direction in [(client, server, ">"), (server, client, "<")]:
                args = (source, sink, name, direction)
                threading.Thread(target=self.pass_on, args=args, daemon=True).start()

    def pass_on(self, source, sink, name, direction):
        data = b""
        while True:
            try:
                more = source.recv(65536)
            except OSError:
                more = b""
            if not more:
                sink.close()
                return
            data += more
            while len(data) >= 4 and len(data) >= 4 + struct.unpack("!i", data[:4])[0]:
                length = struct.unpack("!i", data[:4])[0]
                frame, data = data[4:4 + length], data[4 + length:]
                self.recording.note(name, direction, frame)
                sink.sendall(struct.pack("!i", length) + frame)


def kazoo_locks(recording):
    proxy = Proxy(recording)
    clients = []
    for _ in range(2):
        client = KazooClient(f"127.0.0.1:{proxy.port}", timeout=30)
        client.start()
        clients.append(client)
        time.sleep(0.1)
    one, two = clients
    first, second = one.Lock("/locks/seat", "one"), two.Lock("/locks/seat", "two")
    first.acquire()
    taken = threading.Thread(target=second.acquire)
    taken.start()
    time.sleep(0.5)
    print("contenders", first.contenders())
    time.sleep(0.1)
    first.release()
    taken.join()
    time.sleep(0.1)
    assert not one.Lock("/locks/seat", "again").acquire(blocking=False)
    time.sleep(0.1)
    second.release()
    time.sleep(0.1)
    reader, writer = one.ReadLock("/locks/doc", "r"), two.WriteLock("/locks/doc", "w")
    reader.acquire()
    written = threading.Thread(target=writer.acquire)
    written.start()
    time.sleep(0.5)
    reader.release()
    written.join()
    time.sleep(0.1)
    writer.release()
    time.sleep(0.1)
    for client in clients:
        client.stop()
        time.sleep(0.1)
        client.close()


for name, story, conversation in [
    ("tree", "Znodes are created, changed, read and deleted; paths that are none are refused.", tree),
    ("sequences", "Sequential, ephemeral and container znodes, and the end of a session.", sequences),
    ("watches", "Watches of one change, watches that stay, and those of another connection.", watches),
    ("multis", "Several changes at once, and several reads.", multis),
    ("acls", "Access control lists: world, auth, digest and ip.", acls),
    ("sessions", "A session goes on through another connection; one that is over does not.", sessions),
    ("kazoo-locks", "kazoo's Lock, ReadLock and WriteLock, two clients.", kazoo_locks),
]:
    recording = Recording(name, story)
    conversation(recording)
    recording.end()
