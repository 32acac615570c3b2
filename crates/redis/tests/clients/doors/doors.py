"""One lock through three doors: redis-py, HTTP and gRPC (by `holdfast lock`).

`doors.py HOLDFAST SECONDS PORT`: PORT is for HTTP, the next one for Redis's protocol.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import traceback

import redis
from redis.exceptions import LockError, LockNotOwnedError

HOLDFAST, SECONDS, PORT = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
TTL_MS = 20_000
PATIENCE = 60
os.environ["HOLDFAST_SERVER"] = f"http://127.0.0.1:{PORT}"


def connect():
    return redis.Redis(port=PORT + 1, socket_timeout=PATIENCE)


def call(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=PATIENCE)
    connection.request(method, path, body and json.dumps(body))
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    return answer.status, said


# Each way in gives the token of its grant, and what to call to give the lock back.


def by_redis_lock(name):
    """redis-py's Lock: it polls, and gets in when nobody waits."""
    client = connect()
    lock = client.lock(name, timeout=TTL_MS / 1000, sleep=0.005)
    assert lock.acquire(blocking_timeout=PATIENCE)
    return client.execute_command("HOLDFAST.TOKEN", name), lock.release


def by_redis_line(name):
    """HOLDFAST.ACQUIRE stands in line."""
    client = connect()
    owner = client.execute_command("HOLDFAST.OWNERID")
    granted = client.execute_command(
        "HOLDFAST.ACQUIRE", name, owner, "TTL", TTL_MS, "WAIT", PATIENCE * 1000
    )
    token = granted[0]
    return token, lambda: client.execute_command("HOLDFAST.RELEASE", name, owner, token)


def by_http(name):
    body = {"name": name, "ttl_ms": TTL_MS, "wait_ms": PATIENCE * 1000}
    status, granted = call("POST", "/v1/grab_lock", body)
    assert status == 200, granted
    back = {"name": name, "fencing_token": granted["fencing_token"], "secret": granted["secret"]}
    return granted["fencing_token"], lambda: call("POST", "/v1/release_lock", back)


def by_grpc(name):
    """The command line's client: what it runs says its token, and ends when it is told to."""
    process = subprocess.Popen(
        [HOLDFAST, "lock", name, "--"]
        + ["sh", "-c", 'echo "$HOLDFAST_TOKEN"; read line'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    token = int(process.stdout.readline())

    def give_back():
        process.communicate("\n", timeout=PATIENCE)
        assert process.returncode == 0, process.returncode

    return token, give_back


WAYS = [by_redis_lock, by_redis_line, by_http, by_grpc]
IN_LINE = [by_redis_line, by_http, by_grpc]


def in_thread(work, *arguments):
    """A thread whose failure is not lost."""
    failed = []

    def run():
        try:
            work(*arguments)
        except BaseException:
            failed.append(traceback.format_exc())

    thread = threading.Thread(target=run)
    thread.start()

    def join():
        thread.join(2 * PATIENCE)
        assert not thread.is_alive(), "it does not end"
        assert not failed, failed[0]

    return join


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


TESTS = [
    each_door_sees_the_others,
    a_lock_of_another_door_is_not_given_back,
    those_who_wait_are_served_in_order,
    never_two_hold_it,
]
failures = 0
for test in TESTS:
    try:
        test()
        print(f"test {test.__name__} ... ok", flush=True)
    except BaseException:
        failures += 1
        print(f"test {test.__name__} ... FAILED\n{traceback.format_exc()}", flush=True)
verdict = "FAILED" if failures else "ok"
print(f"test result: {verdict}. {len(TESTS) - failures} passed; {failures} failed")
sys.exit(1 if failures else 0)
