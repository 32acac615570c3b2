"""ZooKeeper's protocol, one frame at a time, so that tests see the order in which frames arrive."""

import collections
import socket
import struct

ANSWER_TIMEOUT = 60

PERSISTENT, EPHEMERAL, SEQUENTIAL = 0, 1, 2
EPHEMERAL_SEQUENTIAL = EPHEMERAL | SEQUENTIAL

OPEN_ACL = [(31, "world", "anyone")]

OPS = {
    "create": 1,
    "delete": 2,
    "exists": 3,
    "get": 4,
    "set": 5,
    "get_acl": 6,
    "set_acl": 7,
    "children": 8,
    "sync": 9,
    "children2": 12,
    "check": 13,
    "multi": 14,
    "create2": 15,
    "check_watch": 17,
    "remove_watch": 18,
    "container": 19,
    "ttl": 21,
    "multi_read": 22,
    "auth": 100,
    "set_watches": 101,
    "ephemerals": 103,
    "all_children": 104,
    "set_watches2": 105,
    "add_watch": 106,
    "who_am_i": 107,
    "close": -11,
}
NAMES = {number: name for name, number in OPS.items()}

# Special xids.
EVENT_XID, AUTH_XID, SET_WATCHES_XID = -1, -4, -8

Event = collections.namedtuple("Event", "type state path")
Reply = collections.namedtuple("Reply", "xid zxid error body")
Stat = collections.namedtuple(
    "Stat",
    "czxid mzxid ctime mtime version cversion aversion owner data_length children pzxid",
)


class Closed(Exception):
    """The server closed the connection."""


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("!i", len(data)) + data


def texts(values):
    return struct.pack("!i", len(values)) + b"".join(map(text, values))


def acls(entries):
    parts = [struct.pack("!i", perms) + text(scheme) + text(who) for perms, scheme, who in entries]
    return struct.pack("!i", len(parts)) + b"".join(parts)


def int_(value):
    return struct.pack("!i", value)


# Encoders of each request's arguments. Those of a multi are its requests: `[name, argument...]`.
BODIES = {
    "create": lambda path, data, acl, flags: text(path) + text(data) + acls(acl) + int_(flags),
    "delete": lambda path, version: text(path) + int_(version),
    "exists": lambda path, watch: text(path) + bytes([watch]),
    "set": lambda path, data, version: text(path) + text(data) + int_(version),
    "get_acl": text,
    "set_acl": lambda path, acl, version: text(path) + acls(acl) + int_(version),
    "sync": text,
    "check": lambda path, version: text(path) + int_(version),
    "check_watch": lambda path, kind: text(path) + int_(kind),
    "ttl": lambda path, data, acl, flags, ttl_ms: (
        text(path) + text(data) + acls(acl) + struct.pack("!iq", flags, ttl_ms)
    ),
    "auth": lambda scheme, who: int_(0) + text(scheme) + text(who),
    "set_watches": lambda zxid, *lists: struct.pack("!q", zxid) + b"".join(map(texts, lists)),
    "multi": lambda ops: multi(ops),
    "who_am_i": lambda: b"",
    "close": lambda: b"",
}
BODIES["create2"] = BODIES["container"] = BODIES["create"]
BODIES["get"] = BODIES["children"] = BODIES["children2"] = BODIES["exists"]
BODIES["remove_watch"] = BODIES["add_watch"] = BODIES["check_watch"]
BODIES["ephemerals"] = BODIES["all_children"] = BODIES["get_acl"]
BODIES["set_watches2"] = BODIES["set_watches"]
BODIES["multi_read"] = BODIES["multi"]


def multi(ops):
    parts = [struct.pack("!i?i", OPS[op], False, -1) + BODIES[op](*args) for op, *args in ops]
    return b"".join(parts) + struct.pack("!i?i", -1, True, -1)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def unpack(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values[0] if len(values) == 1 else values

    def int(self):
        return self.unpack("!i")

    def buffer(self):
        length = self.int()
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at]

    def text(self):
        data = self.buffer()
        return data and data.decode()

    def texts(self):
        return [self.text() for _ in range(self.int())]

    def stat(self):
        return Stat(*self.unpack("!qqqqiiiqiiq"))

    def acls(self):
        return [(self.int(), self.text(), self.text()) for _ in range(self.int())]

    def multi(self):
        results = []
        while True:
            op, done, error = self.unpack("!i?i")
            if done:
                return results
            results.append(("error", self.int()) if op == -1 else (NAMES[op], RESULTS[NAMES[op]](self)))


# Decoders of each request's reply; a request that is not listed has an empty reply.
RESULTS = collections.defaultdict(
    lambda: lambda reader: None,
    {
        "create": Reader.text,
        "exists": Reader.stat,
        "get": lambda reader: (reader.buffer(), reader.stat()),
        "set": Reader.stat,
        "get_acl": lambda reader: (reader.acls(), reader.stat()),
        "set_acl": Reader.stat,
        # Sorted, because their order is unspecified.
        "children": lambda reader: sorted(reader.texts()),
        "children2": lambda reader: (sorted(reader.texts()), reader.stat()),
        "sync": Reader.text,
        "multi": Reader.multi,
        "multi_read": Reader.multi,
        "create2": lambda reader: (reader.text(), reader.stat()),
        "container": lambda reader: (reader.text(), reader.stat()),
        "ttl": lambda reader: (reader.text(), reader.stat()),
        "ephemerals": lambda reader: sorted(reader.texts()),
        "all_children": Reader.int,
        "add_watch": Reader.int,
        "who_am_i": lambda reader: sorted((reader.text(), reader.text()) for _ in range(reader.int())),
    },
)


class Connection:
    """A connection with a new session, or one that attaches `session` with its `password`."""

    def __init__(self, address, session=0, password=bytes(16), zxid=0, timeout_ms=10_000):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.xid, self.zxid, self.asked = 0, zxid, collections.deque()
        self.send_frame(struct.pack("!iqiq", 0, zxid, timeout_ms, session) + text(password) + b"\0")
        reader = Reader(self.receive_frame())
        _, self.timeout_ms, self.session = reader.unpack("!iiq")
        self.password = reader.buffer()

    def send_frame(self, frame):
        self.socket.sendall(struct.pack("!i", len(frame)) + frame)

    def receive_frame(self):
        return self.receive_exactly(struct.unpack("!i", self.receive_exactly(4))[0])

    def receive_exactly(self, count):
        # Nothing is read ahead, so that a selector sees what has arrived.
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionError as error:
                raise Closed from error
            if not more:
                raise Closed
            data += more
        return data

    def send(self, op, *args):
        """Sends a request without waiting for the reply."""
        xid = {"auth": AUTH_XID, "set_watches": SET_WATCHES_XID, "set_watches2": SET_WATCHES_XID}.get(op)
        if xid is None:
            self.xid += 1
            xid = self.xid
        self.asked.append((xid, op))
        try:
            self.send_frame(struct.pack("!ii", xid, OPS[op]) + BODIES[op](*args))
        except ConnectionError as error:
            raise Closed from error

    def receive(self):
        """The next event or reply. Replies arrive in the order of the requests."""
        reader = Reader(self.receive_frame())
        xid, zxid, error = reader.unpack("!iqi")
        if xid == EVENT_XID:
            return Event(*reader.unpack("!ii"), reader.text())
        expected, op = self.asked.popleft()
        assert xid == expected, f"the reply to {xid} came before that to {expected}, {op}"
        self.zxid = max(self.zxid, zxid)
        # The reply to a failed multi still shows which of its requests failed.
        has_body = error == 0 or (op == "multi" and reader.at < len(reader.data))
        return Reply(xid, zxid, error, RESULTS[op](reader) if has_body else None)

    def ask(self, op, *args, events=None):
        """Sends a request and waits for the reply. Events before it are appended to `events`."""
        self.send(op, *args)
        while isinstance(received := self.receive(), Event):
            if events is not None:
                events.append(received)
        return received

    def drop(self):
        """Closes the connection but not the session."""
        self.socket.close()

    def close(self):
        self.ask("close")
        self.drop()
