"""One lock through every door: a recipe of a ZooKeeper client, redis-py, HTTP and gRPC.

`doors.py HOLDFAST SECONDS PORT RECIPE COMMAND...`: RECIPE is `kazoo`, or `curator` with the command
that runs Doors.java. PORT is for HTTP, the next one for Redis's protocol, the one after for
ZooKeeper's.
"""

import itertools
import subprocess
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from ways import (
    HOLDFAST,
    PATIENCE,
    PORT,
    SECONDS,
    TTL_MS,
    by_grpc,
    by_http,
    by_redis_line,
    by_redis_lock,
    call,
    connect,
    in_thread,
    run,
)

RECIPE, COMMAND = sys.argv[4], sys.argv[5:]
# One address per node, so that one lock is held through different nodes.
ADDRESSES = [f"127.0.0.1:{PORT + 100 * node + 2}" for node in range(3)]


def start_kazoo(address, **options):
    client = KazooClient(address, timeout=20, **options)
    client.start(timeout=PATIENCE)
    return client


kazoos = [start_kazoo(address) for address in ADDRESSES]
numbers = itertools.count()


def by_kazoo(name):
    client = kazoos[next(numbers) % len(kazoos)]
    lock = client.Lock(f"/{name}", "kazoo")
    assert lock.acquire(timeout=PATIENCE)
    return client.exists(f"/{name}/{lock.node}").czxid, lock.release


class Curator:
    """The running Doors.java, and the threads that wait for its output."""

    def __init__(self):
        self.process = subprocess.Popen(
            COMMAND + ADDRESSES, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.lines, self.came = {}, threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            contender, *words = line.split()
            with self.came:
                self.lines[contender] = words
                self.came.notify_all()

    def ask(self, contender, *words):
        with self.came:
            self.process.stdin.write(" ".join([contender, *words]) + "\n")
            self.process.stdin.flush()
            assert self.came.wait_for(lambda: contender in self.lines, PATIENCE), f"no answer to {words}"
            return self.lines.pop(contender)

    def by_curator(self, name):
        contender = str(next(numbers))
        said, *token = self.ask(contender, "acquire", f"/{name}")
        assert said == "token", (said, token)

        def give_back():
            assert self.ask(contender, "release") == ["released"]

        return int(token[0]), give_back


if RECIPE == "kazoo":
    by_recipe = by_kazoo
else:
    by_recipe = Curator().by_curator

WAYS = [by_recipe, by_redis_lock, by_redis_line, by_http, by_grpc]
IN_LINE = [by_recipe, by_redis_line, by_http, by_grpc]


def lock_info(name):
    return call("GET", f"/v1/lock?name={name}")[1]


def until(what, holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not yet: {what}"
        time.sleep(0.01)


def children(name):
    """The line as a ZooKeeper client sees it, in order."""
    kazoos[0].sync(f"/{name}")
    if not kazoos[0].exists(f"/{name}"):
        return []
    return sorted(kazoos[0].get_children(f"/{name}"), key=lambda child: child[-10:])


class Later:
    """A contender in a thread of its own."""

    def __init__(self, way, name):
        self.holds, self.back = threading.Event(), threading.Event()
        self.token = None
        self.join = in_thread(self.contend, way, name)

    def contend(self, way, name):
        self.token, give_back = way(name)
        self.holds.set()
        assert self.back.wait(2 * PATIENCE)
        give_back()

    def end(self):
        self.back.set()
        self.join()


def never_two_hold_it():
    """Two contenders for each way to acquire the lock."""
    name, deadline = f"doors/{RECIPE}/contended", time.monotonic() + SECONDS
    inside, served, tokens = [], {way: 0 for way in WAYS}, [0]

    def work(way):
        while time.monotonic() < deadline:
            token, give_back = way(name)
            inside.append(way)
            assert len(inside) == 1, f"two hold the lock: {inside}"
            assert token > tokens[-1], f"token {token} after {tokens[-1]}"
            tokens.append(token)
            time.sleep(0.002)
            served[way] += 1
            inside.remove(way)
            give_back()

    for join in [in_thread(work, way) for way in WAYS * 2]:
        join()
    counts = ", ".join(f"{way.__name__} {count}" for way, count in served.items())
    print(f"measured: doors: {RECIPE}: served {sum(served.values())} times: {counts}")
    # Clients that poll only get the lock while the line is empty, which may never happen here.
    assert all(served[way] > 5 for way in IN_LINE), counts
    assert len(tokens) - 1 == sum(served.values())


def those_who_wait_are_served_in_order():
    name, order = f"doors/{RECIPE}/line", []
    # Whether a client of the recipe is first or comes later.
    for first in (by_http, by_recipe):
        order.clear()
        holder = Later(first, name)
        assert holder.holds.wait(PATIENCE)
        everybody, joins = IN_LINE * 3, []

        def wait(place):
            _, give_back = everybody[place](name)
            order.append(place)
            give_back()

        for place in range(len(everybody)):
            joins.append(in_thread(wait, place))
            until("it is in line", lambda: len(lock_info(name)["waiters"]) == place + 1)
        # As soon as one contender uses a recipe, each of them has a child.
        assert len(children(name)) == len(everybody) + 1, children(name)

        # A client that polls does not get the lock before those in line.
        def poll():
            _, give_back = by_redis_lock(name)
            order.append("poller")
            give_back()

        joins.append(in_thread(poll))
        holder.end()
        for join in joins:
            join()
        assert order == [*range(len(everybody)), "poller"], order
        assert children(name) == []


def each_door_sees_the_others():
    client = connect()
    for way in WAYS:
        name = f"doors/{RECIPE}/{way.__name__}"
        token, give_back = way(name)
        info = lock_info(name)
        assert [holder["token"] for holder in info["holders"]] == [token], info
        assert client.execute_command("HOLDFAST.TOKEN", name) == token
        assert not client.lock(name, timeout=1).acquire(blocking=False)
        status, said = call("POST", "/v1/grab_lock", {"name": name, "ttl_ms": 1000})
        assert (status, said["code"]) == (409, "not_acquired"), said
        tried = subprocess.run([HOLDFAST, "lock", name, "--try", "--", "true"], capture_output=True)
        assert tried.returncode != 0
        if RECIPE == "kazoo":
            assert not kazoos[1].Lock(f"/{name}").acquire(blocking=False)
        late = Later(by_recipe, name)
        until("it waits", lambda: len(lock_info(name)["waiters"]) == 1)
        assert not late.holds.wait(0.2)
        give_back()
        assert late.holds.wait(PATIENCE)
        assert late.token > token, (late.token, token)
        late.end()


def native_readers_keep_a_recipe_out():
    name = f"doors/{RECIPE}/shared"
    body = {"name": name, "ttl_ms": TTL_MS, "mode": "shared"}
    readers = [call("POST", "/v1/grab_lock", body)[1] for _ in range(2)]
    late = Later(by_recipe, name)
    until("it waits", lambda: len(lock_info(name)["waiters"]) == 1)
    for reader in readers:
        assert not late.holds.wait(0.2), "it holds the lock beside a reader"
        back = {"name": name, "fencing_token": reader["fencing_token"], "secret": reader["secret"]}
        status, said = call("POST", "/v1/release_lock", back)
        assert status == 200, said
    assert late.holds.wait(PATIENCE)
    status, said = call("POST", "/v1/grab_lock", body)
    assert (status, said["code"]) == (409, "not_acquired"), said
    late.end()


def another_doors_child_is_protected():
    name = f"doors/{RECIPE}/foreign"
    token, give_back = by_http(name)
    late = Later(by_recipe, name)
    until("it waits", lambda: len(children(name)) == 2)
    child = children(name)[0]
    stat = kazoos[0].exists(f"/{name}/{child}")
    assert stat.czxid == token, (stat, token)
    for change in (lambda path: kazoos[0].delete(path), lambda path: kazoos[0].set(path, b"mine")):
        try:
            change(f"/{name}/{child}")
            raise AssertionError("another door's child was changed")
        except NoAuthError:
            pass
    assert not late.holds.wait(0.2)
    give_back()
    assert late.holds.wait(PATIENCE)
    late.end()


def a_dead_session_is_known_to_the_next_holder():
    name = "doors/kazoo/dead"
    doomed = start_kazoo(ADDRESSES[1])
    assert doomed.Lock(f"/{name}", "doomed").acquire()
    token = lock_info(name)["holders"][0]["token"]
    granted = []
    body = {"name": name, "ttl_ms": TTL_MS, "wait_ms": PATIENCE * 1000}
    join = in_thread(lambda: granted.append(call("POST", "/v1/grab_lock", body)))
    until("it waits", lambda: len(lock_info(name)["waiters"]) == 1)
    doomed.stop()
    join()
    status, said = granted[0]
    assert status == 200 and said["fencing_token"] > token, said
    assert (said["ended"]["how"], said["ended"]["token"]) == ("closed", token), said


run(
    [
        each_door_sees_the_others,
        native_readers_keep_a_recipe_out,
        another_doors_child_is_protected,
        *([a_dead_session_is_known_to_the_next_holder] if RECIPE == "kazoo" else []),
        those_who_wait_are_served_in_order,
        never_two_hold_it,
    ]
)
