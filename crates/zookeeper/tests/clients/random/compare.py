"""Sends random requests to two servers, and checks that replies, events and their order are equal.

`compare.py [--seed N] [--seconds N] [--steps JSON [--times N]] ADDRESSES ADDRESSES`: the addresses of
the reference server, then those of the other one, each separated by commas. Times are not compared.
Of zxids only the order is compared: which are equal, and which is greater. Each run prints its seed.
"""

import argparse
import itertools
import json
import random
import sys
import time

from generate import MAY_EXPIRE, SESSIONS, Generator
from wire import Closed, Connection, Event, Stat

STEPS = 40
TIMEOUT_MS, SHORT_TIMEOUT_MS = 30_000, 2_000
EXPIRES_WITHIN = 20
MANY_DIFFERENCES = 3
# Some differences depend on timing, and don't show in every run.
TRIES = 3


class Zxid(int):
    """A zxid, compared by its rank among all that a run has seen."""


def path_of(message):
    return message.path if isinstance(message, Event) else ""


class Run:
    """One sequence on one server."""

    def __init__(self, addresses, root, steps):
        self.addresses, self.root, self.steps = addresses, root, steps
        self.open, self.owners, self.opened, self.keeper = {}, {}, 0, None
        self.ends = []

    def trace(self):
        """What each step led to: its replies, and what every session received of it."""
        keeper = Connection(self.addresses[0], timeout_ms=TIMEOUT_MS)
        keeper.ask("create", self.root, b"", [(31, "world", "anyone")], 0)
        self.keeper = keeper
        done = []
        try:
            for session, *request in self.steps:
                done.append(self.step(session, *request))
        except AssertionError as error:
            done.append({"broken": str(error)})
        finally:
            for connection in self.open.values():
                try:
                    connection.close()
                except (AssertionError, Closed, OSError):
                    connection.drop()
            self.delete(keeper, self.root)
            keeper.close()
        return ranked(done, self.ends)

    def delete(self, keeper, path):
        # Access control lists that a sequence sets may not allow this; then the znode stays.
        for child in keeper.ask("children", path, False).body or []:
            self.delete(keeper, f"{path}/{child}")
        keeper.ask("delete", path, -1)

    def step(self, session, name, *args):
        events = {letter: [] for letter in SESSIONS}
        if name in ("close", "expire"):
            self.connect(session)
            before = self.keeper.ask("sync", "/").zxid
        if name == "expire":
            done = self.expire(session, events)
        else:
            done = self.do(session, name, args, events[session])
        # Once a session has read the new state, it has received all events up to it.
        for letter in SESSIONS:
            if letter in self.open:
                self.settle(letter, events[letter])
        if name in ("close", "expire"):
            # A session's znodes may be deleted in any order, and not in one change.
            self.ends.append((before, self.keeper.ask("sync", "/").zxid))
            events = {letter: sorted(of, key=path_of) for letter, of in events.items()}
        return {"done": done, "events": {key: value for key, value in events.items() if value}}

    def connect(self, session):
        if session not in self.open:
            self.opened += 1
            timeout_ms = SHORT_TIMEOUT_MS if session == MAY_EXPIRE else TIMEOUT_MS
            # Sessions are spread over the nodes.
            address = self.addresses[self.opened % len(self.addresses)]
            connection = Connection(address, timeout_ms=timeout_ms)
            self.owners[connection.session] = f"session {self.opened}"
            self.open[session] = connection
            # A node that lags behind must not cause a difference.
            connection.ask("sync", "/")
        return self.open[session]

    def do(self, session, name, args, received):
        connection = self.connect(session)
        try:
            if name == "batch":
                for request in args[0]:
                    self.send(connection, *request)
                for _ in args[0]:
                    self.reply(connection, received)
            elif name == "drop":
                connection.drop()
                address = self.addresses[(self.opened + 1) % len(self.addresses)]
                lost = (connection.session, connection.password, connection.zxid, connection.timeout_ms)
                again = Connection(address, *lost)
                del self.open[session]
                if again.session == connection.session:
                    self.open[session] = again
                received.append(("goes on", again.session == connection.session, again.timeout_ms))
            else:
                self.send(connection, name, *args)
                self.reply(connection, received)
        except Closed:
            connection.drop()
            del self.open[session]
            received.append("closed")
            return name
        if name == "close":
            connection.drop()
            del self.open[session]
        return name

    def send(self, connection, name, *args):
        if name in ("set_watches", "set_watches2"):
            args = [connection.zxid, *([self.root + path for path in paths] for paths in args[1:])]
        elif name in ("multi", "multi_read"):
            args = [[[op, self.root + path, *rest] for op, path, *rest in args[0]]]
        elif name not in ("auth", "who_am_i", "close"):
            args = [self.root + args[0], *args[1:]]
        connection.send(name, *args)

    def reply(self, connection, received):
        before = connection.zxid
        while isinstance(message := connection.receive(), Event):
            received.append(message)
        # The reply to auth has no zxid.
        assert message.zxid >= before or message.zxid == 0, f"zxid {message.zxid} after {before}"
        received.append(("reply", message.error, self.seen(message.body)))

    def settle(self, session, received):
        connection = self.open[session]
        try:
            connection.ask("sync", "/", events=received)
        except Closed:
            connection.drop()
            del self.open[session]
            received.append("closed")

    def expire(self, session, events):
        connection = self.connect(session)
        probe = f"{self.root}-alive"
        connection.ask("create", probe, b"", [(31, "world", "anyone")], 1)
        connection.drop()
        del self.open[session]
        until = time.monotonic() + EXPIRES_WITHIN
        while time.monotonic() < until:
            time.sleep(0.2)
            for letter in list(self.open):
                self.settle(letter, events[letter])
            self.keeper.ask("sync", "/")
            if self.keeper.ask("exists", probe, False).error:
                return "expired"
        return "did not expire"

    def seen(self, value):
        if isinstance(value, Stat):
            owner = self.owners.get(value.owner, value.owner)
            zxids = {field: Zxid(getattr(value, field)) for field in ("czxid", "mzxid", "pzxid")}
            return value._replace(ctime=0, mtime=0, owner=owner, **zxids)
        if isinstance(value, (list, tuple)):
            return [self.seen(one) for one in value]
        return value


def ranked(trace, ends):
    """The trace with ranks instead of zxids. Those within one of the ranges `ends` count as one."""

    def zxid_of(zxid):
        return next((after for before, after in ends if before < zxid <= after), int(zxid))

    found = set()
    visit(trace, lambda zxid: found.add(zxid_of(zxid)))
    order = {zxid: place for place, zxid in enumerate(sorted(found))}
    return visit(trace, lambda zxid: f"zxid {order[zxid_of(zxid)]}")


def visit(value, replace):
    if isinstance(value, Zxid):
        return replace(value)
    if isinstance(value, dict):
        return {key: visit(one, replace) for key, one in value.items()}
    if isinstance(value, (Event, Stat)):
        return type(value)(*[visit(one, replace) for one in value])
    if isinstance(value, (list, tuple)):
        return [visit(one, replace) for one in value]
    return value


class Difference:
    def __init__(self, at, here, there):
        self.at, self.here, self.there = at, here, there


class Comparison:
    def __init__(self, first, second):
        self.servers, self.roots = [first, second], itertools.count()
        self.prefix = f"/random-{random.SystemRandom().randrange(1 << 32):08x}"

    def difference_within(self, times, steps):
        """The first difference between the servers that shows in one of this many runs, if any."""
        return next(filter(None, (self.difference(steps) for _ in range(times))), None)

    def difference(self, steps):
        """The first difference between the servers, if any."""
        root = f"{self.prefix}-{next(self.roots)}"
        here, there = [Run(server, root, steps).trace() for server in self.servers]
        for at, (one, other) in enumerate(itertools.zip_longest(here, there)):
            if one != other:
                return Difference(at, one, other)
        return None

    def shortest(self, steps, difference):
        """Removes steps, by halves and ever smaller parts, as long as a difference remains; then single
        requests of batches and multis."""
        steps = steps[: difference.at + 1]
        size = len(steps) // 2
        while size >= 1:
            at = 0
            while at < len(steps):
                shorter = steps[:at] + steps[at + size :]
                found = self.difference_within(TRIES, shorter) if shorter else None
                if found:
                    steps, difference = shorter[: found.at + 1], found
                else:
                    at += size
            size //= 2
        while True:
            for shorter in without_one(steps):
                if found := self.difference_within(TRIES, shorter):
                    steps, difference = shorter[: found.at + 1], found
                    break
            else:
                return steps, difference


def without_one(steps):
    """All sequences with one request of a batch or a multi removed."""
    for at, (session, name, *args) in enumerate(steps):
        if name in ("batch", "multi"):
            for inner in range(len(args[0])):
                fewer = args[0][:inner] + args[0][inner + 1 :]
                yield [*steps[:at], [session, name, fewer], *steps[at + 1 :]]


def show(steps, difference, options):
    print("the shortest sequence found that differs:")
    for step in steps:
        print("   ", json.dumps(step))
    print("expected:", difference.here)
    print("actual:  ", difference.there)
    print(f"again: {options.again} --steps {json.dumps(json.dumps(steps))}")
    print(f"or:    {options.again} --seed {options.seed}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--steps", type=json.loads)
    parser.add_argument("--times", type=int, default=20, help="how often the steps are tried")
    parser.add_argument("--again", default="compare.py")
    parser.add_argument("first")
    parser.add_argument("second")
    options = parser.parse_args()
    comparison = Comparison(options.first.split(","), options.second.split(","))
    if options.steps:
        found = comparison.difference_within(options.times, options.steps)
        if found:
            show(options.steps, found, options)
        sys.exit(1 if found else 0)

    print(f"measured: random: seed {options.seed}", flush=True)
    generator = Generator(random.Random(options.seed))
    until, sequences, steps_done, differences = time.monotonic() + options.seconds, 0, 0, 0
    while time.monotonic() < until and differences < MANY_DIFFERENCES:
        steps = generator.sequence(STEPS)
        sequences, steps_done = sequences + 1, steps_done + len(steps)
        found = comparison.difference(steps)
        # Tried again, because a session may have expired while the machine was stalled.
        if found and (found := comparison.difference_within(TRIES, steps)):
            differences += 1
            show(*comparison.shortest(steps, found), options)
    print(f"measured: random: {sequences} sequences, {steps_done} steps")
    verdict = "FAILED" if differences else "ok"
    print(f"test result: {verdict}. {sequences - differences} passed; {differences} failed")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
