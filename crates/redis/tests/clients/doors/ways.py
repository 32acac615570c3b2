"""Ways to take a lock through each door, and what tests of several doors share.

The script that imports this is called as `SCRIPT HOLDFAST SECONDS PORT`: PORT is for HTTP, the next
one for Redis's protocol.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import traceback

import redis

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


def run(tests):
    """Runs them all, and ends the script."""
    failures = 0
    for test in tests:
        try:
            test()
            print(f"test {test.__name__} ... ok", flush=True)
        except BaseException:
            failures += 1
            print(f"test {test.__name__} ... FAILED\n{traceback.format_exc()}", flush=True)
    verdict = "FAILED" if failures else "ok"
    print(f"test result: {verdict}. {len(tests) - failures} passed; {failures} failed")
    sys.exit(1 if failures else 0)
