//! The part of docs/cli.md that needs other engines, typed as written.

use crate::support::follow;

const GUIDE: &str = include_str!("../../../../docs/cli.md");

/// The engines on their default ports, in their own network namespace. PostgreSQL refuses to run as
/// root.
const SERVERS: &str = r#"
<!-- run admin: redis-server --port 6379 --save '' > redis.log 2>&1 & -->
<!-- run admin: etcd --data-dir etcd > etcd.log 2>&1 & -->
<!-- run admin: mkdir postgres; chmod 777 . postgres; chmod a+x ..; chown postgres postgres || true -->
<!-- run admin: bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1); as() { if [ $(id -u) = 0 ]; then setpriv --reuid postgres --regid postgres --clear-groups "$@"; else "$@"; fi; }; as $bin/initdb -D postgres/data -U app -A trust --no-sync; echo "create database app" | as $bin/postgres --single -D postgres/data postgres; (as $bin/postgres -D postgres/data -c listen_addresses=127.0.0.1 -c unix_socket_directories= > postgres.log 2>&1 &) -->
<!-- run admin: until (echo > /dev/tcp/127.0.0.1/6379) && curl -fs http://127.0.0.1:2379/health && $(ls -d /usr/lib/postgresql/*/bin | tail -1)/pg_isready -h 127.0.0.1; do sleep 0.2; done -->
"#;

/// Would fail if a command in the guide did not work, or did something else than it says.
#[test]
#[ignore = "needs Redis, etcd and PostgreSQL: ./test engines"]
fn engines_section_of_the_guide_works_as_written() {
    let (_, rest) = GUIDE.split_once("<!-- engines -->\n").expect("a part about engines");
    let (engines, _) = rest.split_once("<!-- end of engines -->").expect("the end of that part");
    follow(&format!("{SERVERS}{engines}"));
}
