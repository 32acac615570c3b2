"""What schemathesis must not do: wait for a lock for hours."""

import schemathesis

WAIT_MS_MAX = 20


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict):
        wait_ms = body.get("wait_ms")
        if isinstance(wait_ms, int) and WAIT_MS_MAX < wait_ms <= 86_400_000:
            body["wait_ms"] = WAIT_MS_MAX
    return body
