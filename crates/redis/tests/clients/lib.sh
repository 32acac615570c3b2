# What the suites of Redis clients share. Each is a script `run SERVER` that begins with
# `source ../lib.sh`: SERVER is the built holdfast, or `redis-server` to see what passes there.
#
# What is downloaded or built goes into a folder in the user's cache; servers listen on free ports
# of this machine, keep their files in a folder that goes with the script, and end with it.
# shellcheck shell=bash

set -eu -o pipefail

here=$(cd -- "$(dirname -- "$0")" && pwd)
cache=${XDG_CACHE_HOME:-~/.cache}/holdfast
server=${1:-${CARGO_TARGET_DIR:-$cache/target}/release/holdfast}
command -v "$server" >/dev/null ||
    { echo "there is no $server: build it, or name another one" >&2 && exit 64; }

folder=$(mktemp -d)
started=()
stop_all() {
    local pid
    for pid in "${started[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap stop_all EXIT

# `need TOOL PACKAGE...`: the tool, or how to get it.
need() {
    command -v "$1" >/dev/null && return
    echo "$1 is missing. Install it with: sudo apt-get install -y ${*:2}"
    exit 1
}

# Go 1.21 and later fetch the version that go.mod names.
need_go() {
    local minor
    minor=$(go version 2>/dev/null | sed -n 's/^go version go1\.\([0-9]*\).*/\1/p')
    ((${minor:-0} >= 21)) && return
    echo "Go 1.21 or later is missing. Install it from https://go.dev/dl"
    exit 1
}

# `install NAME FILE... -- COMMAND...`: runs the command in the cache's folder NAME, with the files
# copied there, unless that was done before with the same files. Sets `home` to that folder.
install() {
    local name=$1 files=() file same=yes
    shift
    while [[ $1 != -- ]]; do
        files+=("$1")
        shift
    done
    shift
    home=$cache/clients/$name
    mkdir -p "$home"
    exec 8>"$home.lock"
    flock 8
    for file in "${files[@]}"; do
        cmp -s "$here/$file" "$home/installed/$file" || same=no
    done
    if [[ $same == no ]]; then
        rm -rf "$home" && mkdir -p "$home/installed"
        (cd "$home" && cp -r "${files[@]/#/$here/}" . && "$@")
        cp "${files[@]/#/$here/}" "$home/installed/"
    fi
    exec 8>&-
}

# `install_python NAME [PACKAGE==VERSION]`: what requirements.txt names, into the folder `venv`,
# and the package's source, tests included, into the folder `source`.
install_python() {
    python3 -c 'import venv, ensurepip' || {
        echo "Python is missing. Install it with: sudo apt-get install -y python3 python3-venv"
        exit 1
    }
    # shellcheck disable=SC2016
    install "$1" requirements.txt -- bash -eu -c '
        python3 -m venv venv
        pip() { venv/bin/pip --quiet --disable-pip-version-check "$@"; }
        pip install -r requirements.txt
        for package; do
            pip download --no-deps --no-binary :all: --dest archive "$package"
            mkdir source
            tar --extract --gzip --file archive/*.tar.gz --directory source --strip-components 1
        done' bash "${@:2}"
    export PYTHONDONTWRITEBYTECODE=1
}

# The first of so many hundreds of free ports, as `holdfast dev` uses them.
free_ports() {
    python3 - "$1" <<'PYTHON'
import random, socket, sys
nodes = range(int(sys.argv[1]))
while True:
    base = random.randrange(10000, 31000)
    held = []
    try:
        for port in [base + 100 * node + door for node in nodes for door in range(11)]:
            held.append(socket.socket())
            held[-1].bind(("127.0.0.1", port))
        print(base)
        break
    except OSError:
        continue
    finally:
        for one in held:
            one.close()
PYTHON
}

# `start NODES [ARGUMENT...]`: sets `base`, the port for HTTP, and `addresses`, where Redis's
# protocol is spoken. A real Redis has one address, whatever NODES is.
start() {
    local nodes=$1 node
    base=$(free_ports "$nodes")
    addresses=()
    if [[ ${server##*/} == redis-server ]]; then
        start_redis $((base + 1))
        addresses=("127.0.0.1:$((base + 1))")
        return
    fi
    "$server" dev --nodes "$nodes" --port "$base" --data-dir "$folder/data" "${@:2}" \
        >"$folder/log" 2>&1 &
    started+=($!)
    for ((node = 0; node < nodes; node++)); do
        addresses+=("127.0.0.1:$((base + 100 * node + 1))")
        until_ready $((base + 100 * node))
    done
}

# `start_redis PORT`: a real one, that keeps nothing.
start_redis() {
    redis-server --port "$1" --bind 127.0.0.1 --save '' --appendonly no --dir "$folder" \
        >"$folder/redis-log" 2>&1 &
    started+=($!)
    for _ in {1..300}; do
        redis-cli -p "$1" ping 2>/dev/null | grep -q PONG && return
        sleep 0.1
    done
    echo "redis-server does not answer" && exit 1
}

until_ready() {
    for _ in {1..600}; do
        curl -sf -o "$folder/ready" "http://127.0.0.1:$1/readyz" && return
        sleep 0.1
    done
    echo "the node at port $1 does not become ready" && tail -n 50 "$folder/log"
    exit 1
}

# Kills the leader as a power cut would; `dev` starts it again. Says whether there was one.
kill_leader() {
    local node leader pid
    for node in 1 2 3; do
        leader=$(curl -s -m 2 "http://127.0.0.1:$((base + 100 * (node - 1)))/v1/status" |
            sed -n 's/.*"leader":\([0-9]*\).*/\1/p')
        [[ -n $leader ]] || continue
        pid=$(cat "$folder/data/node-$leader/pid")
        # The number is of a process of ours.
        tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qF "$folder/data" || continue
        kill -9 "$pid" && return
    done
    return 1
}

# `while_leaders_die COMMAND...`: runs it, and meanwhile kills one leader after the other.
while_leaders_die() {
    local killed=0 status=0 pid
    "$@" &
    pid=$!
    while [[ ${#addresses[@]} -gt 1 ]] && sleep 5 && kill -0 "$pid" 2>/dev/null; do
        kill_leader && killed=$((killed + 1))
        sleep 1
        until_ready "$base" && until_ready $((base + 100)) && until_ready $((base + 200))
    done
    wait "$pid" || status=$?
    [[ ${#addresses[@]} -gt 1 ]] || return "$status"
    echo "measured: ${here##*/}: $killed leaders killed"
    ((killed >= 2)) || { echo "too few leaders died" && status=1; }
    ((status == 0)) || tail -n 100 "$folder/log"
    return "$status"
}

# Reads what pytest prints, passes it on, and adds the line that `./test` counts.
count_pytest() {
    awk '{ print }
        /^[0-9]+ (passed|failed|error|skipped|deselected).* in / {
            for (at = 1; at < NF; at++) {
                if ($(at + 1) ~ /^passed/) passed = $at
                if ($(at + 1) ~ /^(failed|error)/) failed += $at
            }
        }
        END { printf "test result: %s. %d passed; %d failed\n", failed ? "FAILED" : "ok", passed, failed }'
}
