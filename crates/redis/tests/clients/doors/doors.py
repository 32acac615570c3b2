"""One lock through three doors: redis-py, HTTP and gRPC (by `holdfast lock`).

`doors.py HOLDFAST SECONDS PORT`: PORT is for HTTP, the next one for Redis's protocol.
"""

import subprocess
import threading
import time

import redis
from redis.exceptions import LockError, LockNotOwnedError
from ways import (
    HOLDFAST,
    PATIENCE,
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

WAYS = [by_redis_lock, by_redis_line, by_http, by_grpc]
IN_LINE = [by_redis_line, by_http, by_grpc]


def never_two_hold_it():
    """Eight at once, two for each way in."""
    name, until = "doors/contended", time.monotonic() + SECONDS
    inside, served, tokens = [], {way: 0 for way in WAYS}, [0]

    def work(way):
        while time.monotonic() < until:
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
    print(f"measured: doors: served {sum(served.values())} times: {counts}")
    # Who polls gets in only when the line is empty, which it may never be here.
    assert all(served[way] > 5 for way in IN_LINE), counts
    assert len(tokens) - 1 == sum(served.values())


def those_who_wait_are_served_in_order():
    name, order = "doors/line", []
    waiting = lambda: len(call("GET", f"/v1/lock?name={name}")[1]["waiters"])
    _, give_back = by_http(name)
    everybody = IN_LINE * 3

    def wait(place):
        _, done = everybody[place](name)
        order.append(place)
        done()

    joins = []
    for place in range(len(everybody)):
        joins.append(in_thread(wait, place))
        until = time.monotonic() + PATIENCE
        while waiting() != place + 1:
            assert time.monotonic() < until, "nobody came into the line"
            time.sleep(0.01)
    # Whoever only tries does not get in before those who wait.
    tries = threading.Event()

    def poll():
        client = connect()
        while not tries.is_set():
            if client.set(name, "poller", nx=True, px=TTL_MS):
                order.append("poller")
                client.delete(name)
                return

    join = in_thread(poll)
    give_back()
    for waiter in joins:
        waiter()
    tries.set()
    join()
    served = [place for place in order if place != "poller"]
    assert served == list(range(len(everybody))), order
    assert "poller" not in order[:-1], order


def each_door_sees_the_others():
    client = connect()
    for way in WAYS:
        name = f"doors/{way.__name__}"
        token, give_back = way(name)
        assert client.execute_command("HOLDFAST.TOKEN", name) == token
        assert not client.set(name, "me", nx=True, px=1000)
        assert not client.lock(name, timeout=1).acquire(blocking=False)
        status, said = call("POST", "/v1/grab_lock", {"name": name, "ttl_ms": 1000})
        assert (status, said["code"]) == (409, "not_acquired"), said
        tried = subprocess.run(
            [HOLDFAST, "lock", name, "--try", "--", "true"],
            capture_output=True,
        )
        assert tried.returncode != 0
        give_back()
        status, granted = call("POST", "/v1/grab_lock", {"name": name, "ttl_ms": 60_000})
        assert status == 200 and granted["fencing_token"] > token, granted


def a_lock_of_another_door_is_not_given_back():
    name, client = "doors/foreign", connect()
    token, give_back = by_http(name)
    for words in [("DEL", name), ("SET", name, "x"), ("PEXPIRE", name, 10)]:
        try:
            client.execute_command(*words)
            raise AssertionError(f"{words} was not refused")
        except redis.ResponseError as error:
            assert str(error).startswith("HELD "), error
    lock = client.lock(name, timeout=10, thread_local=False)
    lock.local.token = b"guess"
    try:
        lock.release()
        raise AssertionError("another door's lock was given back")
    except (LockNotOwnedError, LockError):
        pass
    assert client.execute_command("HOLDFAST.TOKEN", name) == token
    give_back()


run(
    [
        each_door_sees_the_others,
        a_lock_of_another_door_is_not_given_back,
        those_who_wait_are_served_in_order,
        never_two_hold_it,
    ]
)
