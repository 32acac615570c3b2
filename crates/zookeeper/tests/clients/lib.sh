# Shared by the test suites for ZooKeeper clients. Each is a script `run SERVER` that starts with
# `source ../lib.sh`: SERVER is the built holdfast, or `zookeeper` for a real one (Debian's package).
# Everything else is as in the suites for Redis clients.
# shellcheck shell=bash

clients=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

# `zookeeper PORT`: replaces this shell with a real, standalone ZooKeeper.
zookeeper() {
    local jars=/usr/share/java data=$folder/zookeeper-$1
    if [[ ! -e $jars/zookeeper.jar ]]; then
        echo "ZooKeeper is missing. Install it with: sudo apt-get install -y libzookeeper-java"
        exit 1
    fi
    mkdir "$data"
    # Sessions may have a timeout of 1s, tests open many connections, and no data needs to survive.
    printf '%s\n' "dataDir=$data" "clientPort=$1" clientPortAddress=127.0.0.1 tickTime=500 \
        maxSessionTimeout=120000 maxClientCnxns=0 admin.enableServer=false '4lw.commands.whitelist=*' \
        extendedTypesEnabled=true >"$data/zoo.cfg"
    exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dzookeeper.forceSync=no -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
        -cp "$jars/zookeeper.jar:$jars/slf4j-simple.jar" \
        org.apache.zookeeper.server.quorum.QuorumPeerMain "$data/zoo.cfg"
}

# shellcheck source=../../../redis/tests/clients/lib.sh
source "$clients/../../../redis/tests/clients/lib.sh"

# `start_zookeeper PORT`: waits until it answers, since it accepts connections before it can serve.
start_zookeeper() {
    need java default-jdk-headless libzookeeper-java
    (zookeeper "$1") >"$folder/zookeeper-log" 2>&1 &
    started+=($!)
    for _ in {1..600}; do
        python3 - "$1" <<'PYTHON' && return
import socket, sys
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=2) as connection:
        connection.sendall(b"srvr")
        connection.shutdown(socket.SHUT_WR)
        sys.exit(b"Mode: " not in connection.makefile("rb").read())
except OSError:
    sys.exit(1)
PYTHON
        sleep 0.1
    done
    echo "ZooKeeper does not answer" && tail -n 50 "$folder/zookeeper-log"
    exit 1
}

# `start NODES [ARGUMENT...]`: sets `base`, the port for HTTP, and `addresses`, where ZooKeeper's
# protocol is spoken. A real ZooKeeper has one address, whatever NODES is.
eval "$(declare -f start | sed '1s/start/start_holdfast/')"
start() {
    if [[ $server == zookeeper ]]; then
        base=$(free_ports 1)
        start_zookeeper $((base + 2))
        addresses=("127.0.0.1:$((base + 2))")
        return
    fi
    start_holdfast "$@"
    local node
    addresses=()
    for ((node = 0; node < $1; node++)); do
        addresses+=("127.0.0.1:$((base + 100 * node + 2))")
    done
}

# One environment for everything in Python. Sets `python`.
install_kazoo() {
    local here=$clients/kazoo
    install_python kazoo
    python=$home/venv/bin/python
    export PYTHONPATH=$clients
}

# Curator's jars, and the programs here that use them. Sets `java`, the command that runs them.
install_curator() {
    local here=$clients/curator
    need java default-jdk-headless maven
    need mvn default-jdk-headless maven
    install curator pom.xml Recipes.java Contend.java Contended.java Doors.java -- bash -eu -c '
        mkdir -p src/main/java && cp ./*.java src/main/java/
        mvn -B -q compile dependency:copy-dependencies'
    java=(java -XX:+UseSerialGC -Xmx256m -XX:TieredStopAtLevel=1
        -cp "$home/target/classes:$home/target/dependency/*")
}
