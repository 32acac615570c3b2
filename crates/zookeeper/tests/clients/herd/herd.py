"""A thousand contenders for one lock, like kazoo's Lock: each hand-off must wake exactly one.

`herd.py CONTENDERS ADDRESS...`: each contender has a session of its own; they are spread over the
addresses. A contender that is woken checks that it is first, and releases the lock.
"""

import selectors
import sys
import time

from wire import EPHEMERAL_SEQUENTIAL, OPEN_ACL, Closed, Connection, Event

CONTENDERS, ADDRESSES = int(sys.argv[1]), sys.argv[2:]
DIRECTORY = "/herd"
TIMEOUT_MS = 120_000
DELETED = 2
# No wake-up for this long means that none is coming.
QUIET = 2


def number(name):
    return int(name[-10:])


class Contender:
    def __init__(self, place):
        self.place, self.events = place, []
        self.connection = Connection(ADDRESSES[place % len(ADDRESSES)], timeout_ms=TIMEOUT_MS)

    def ask(self, op, *args):
        reply = self.connection.ask(op, *args, events=self.events)
        assert reply.error == 0, f"{op} {args}: error {reply.error}"
        return reply.body

    def enter(self):
        prefix = f"{DIRECTORY}/{self.place:032x}__lock__"
        path = self.ask("create", prefix, b"", OPEN_ACL, EPHEMERAL_SEQUENTIAL)
        self.name = path.rsplit("/", 1)[1]

    def look(self):
        """Whether this contender is first. If not, it watches the one before it."""
        if len(ADDRESSES) > 1:
            self.ask("sync", DIRECTORY)
        children = sorted(self.ask("children", DIRECTORY, False), key=number)
        at = children.index(self.name)
        if at == 0:
            return True
        self.ask("exists", f"{DIRECTORY}/{children[at - 1]}", True)
        return False

    def leave(self):
        self.ask("delete", f"{DIRECTORY}/{self.name}", -1)


began = time.monotonic()
contenders = [Contender(place) for place in range(CONTENDERS)]
contenders[0].ask("create", DIRECTORY, b"", OPEN_ACL, 0)
for contender in contenders:
    if len(ADDRESSES) > 1:
        contender.ask("sync", DIRECTORY)
    contender.enter()
for contender in contenders[1:]:
    assert not contender.look()
assert contenders[0].look()
print(f"measured: herd: {CONTENDERS} in line after {time.monotonic() - began:.1f} s", flush=True)

selector = selectors.DefaultSelector()
for contender in contenders:
    selector.register(contender.connection.socket, selectors.EVENT_READ, contender)

# Each holder releases the lock; only the next contender may be woken by that.
began, handoffs, wakeups, failures = time.monotonic(), 0, [0] * CONTENDERS, []
contenders[0].leave()
while ready := selector.select(QUIET):
    for key, _ in ready:
        contender = key.data
        try:
            received = contender.connection.receive()
        except Closed:
            failures.append(f"the connection of {contender.place} was closed")
            selector.unregister(key.fileobj)
            continue
        wakeups[contender.place] += 1
        if not isinstance(received, Event) or received.type != DELETED:
            failures.append(f"{contender.place} received {received}")
        before = f"{DIRECTORY}/{contenders[contender.place - 1].name}"
        if received.path != before:
            failures.append(f"{contender.place} was told of {received.path}")
        if not contender.look():
            failures.append(f"{contender.place} was woken before its turn")
            continue
        handoffs += 1
        contender.leave()
seconds = time.monotonic() - began - QUIET

# Events that arrived ahead of a reply were not seen by the selector.
stray = sum(len(contender.events) for contender in contenders)
print(
    f"measured: herd: {handoffs} hand-offs, {sum(wakeups) + stray} wake-ups, "
    f"{handoffs / max(seconds, 0.001):.0f} hand-offs/s"
)
if stray:
    failures.append(f"{stray} events came with replies")
if wakeups != [0] + [1] * (CONTENDERS - 1):
    failures.append(f"wake-ups of each: {wakeups}")
left = contenders[0].ask("children", DIRECTORY, False)
if left:
    failures.append(f"left in line: {left}")
contenders[0].ask("delete", DIRECTORY, -1)
for contender in contenders:
    try:
        contender.connection.close()
    except Closed:
        failures.append(f"the end of {contender.place}'s session was not answered")
for failure in failures[:20]:
    print(failure)
verdict = "FAILED" if failures else "ok"
print(f"test result: {verdict}. {0 if failures else 1} passed; {1 if failures else 0} failed")
sys.exit(1 if failures else 0)
