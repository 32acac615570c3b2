//! What only etcd can get wrong.

use crate::engine::unique;
use crate::proxy::{Mode, Proxy};
use crate::servers::Server;
use crate::servers::etcd::{Etcd, etcdctl};
use crate::servers::process::free_port;
use holdfast_locks::{Error, Locks};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

fn url() -> String {
    format!("etcd://127.0.0.1:{}", Etcd::shared().port)
}

async fn refusal(url: &str) -> Error {
    let builder = Locks::builder().timeout(Duration::from_secs(3));
    builder.connect(url).await.expect_err("it must be refused")
}

fn assert_error_contains(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
}

/// Waits until this many are waiting for the lock.
async fn in_line(locks: &Locks, name: &str, waiters: usize) -> Vec<String> {
    for _ in 0..1_000 {
        let line = locks.inspect(name).await.unwrap().and_then(|lock| lock.line);
        match line {
            Some(line) if line.len() == waiters => return line,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    panic!("{waiters} waiters are not in line");
}

/// `etcdctl lock` and this library exclude each other, and wait for each other in order.
#[tokio::test]
#[ignore = "needs etcd: ./test engines"]
async fn etcdctl_lock_and_ours_exclude_each_other() {
    let (locks, name) = (Locks::connect(&url()).await.unwrap(), unique("etcdctl"));
    let port = Etcd::shared().port;

    // etcdctl holds it: its first line is its key.
    let mut holder = etcdctl(port, &["lock", &name]).stdout(Stdio::piped()).spawn().unwrap();
    let mut key = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut key).unwrap();
    assert!(key.starts_with(&name), "{key}");
    assert!(locks.lock(&name).try_acquire().await.unwrap().is_none());
    let seen = locks.inspect(&name).await.unwrap().unwrap();
    assert!(seen.holder.unwrap().starts_with("lease "));
    let timed_out = locks.lock(&name).wait(Duration::from_millis(300)).acquire().await;
    assert!(matches!(timed_out, Err(Error::TimedOut { holder: Some(_) })), "{timed_out:?}");

    // It is handed over to our waiter, then to an etcdctl behind it.
    let waiting = tokio::spawn(locks.lock(&name).label("ana").acquire());
    assert_eq!(in_line(&locks, &name, 1).await, ["ana"]);
    let next = etcdctl(port, &["lock", &name, "echo", "served"]).stdout(Stdio::piped()).spawn();
    let mut next = next.unwrap();
    in_line(&locks, &name, 2).await;
    let pid = rustix::process::Pid::from_child(&holder);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    holder.wait().unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(in_line(&locks, &name, 1).await.len(), 1);
    assert!(next.try_wait().unwrap().is_none(), "etcdctl was served beside the holder");
    guard.release().await.unwrap();
    let served = tokio::task::spawn_blocking(|| next.wait_with_output()).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&served.stdout).contains("served"));
    assert_eq!(locks.inspect(&name).await.unwrap(), None);
}

/// A lock whose lease was revoked, or whose key was deleted, by hand: the holder notices.
#[tokio::test]
#[ignore = "needs etcd: ./test engines"]
async fn manually_deleted_lock_is_lost() {
    let (locks, port) = (Locks::connect(&url()).await.unwrap(), Etcd::shared().port);
    for deletes_the_key in [true, false] {
        let name = unique("by-hand");
        let guard = locks.lock(&name).ttl(Duration::from_secs(6)).acquire().await.unwrap();
        let prefix = format!("{name}/");
        let key = etcdctl(port, &["get", &prefix, "--prefix", "--keys-only"]).output().unwrap();
        let key = String::from_utf8(key.stdout).unwrap().trim().to_owned();
        let lease = key.strip_prefix(&prefix).unwrap();
        let arguments =
            if deletes_the_key { vec!["del", &key] } else { vec!["lease", "revoke", lease] };
        assert!(etcdctl(port, &arguments).output().unwrap().status.success());
        let lost = tokio::time::timeout(Duration::from_secs(60), guard.lost()).await.unwrap();
        assert!(lost.to_string().contains("revoked"), "{lost}");
    }
}

/// etcd can't change the TTL of a lease: a longer one is a new lease under the same key, which
/// keeps its token and its place.
#[tokio::test]
#[ignore = "needs etcd: ./test engines"]
async fn lease_can_be_extended_beyond_its_first_ttl() {
    let (locks, name) = (Locks::connect(&url()).await.unwrap(), unique("longer"));
    let guard = locks.lock(&name).ttl(Duration::from_secs(2)).fixed().acquire().await.unwrap();
    guard.extend(Duration::from_secs(60)).await.unwrap();
    assert!(guard.remaining() > Duration::from_secs(30), "{:?}", guard.remaining());
    let refused = locks.lock(&name).wait(Duration::from_secs(6)).acquire().await;
    assert!(matches!(refused, Err(Error::TimedOut { .. })), "{refused:?}");
    assert_eq!(locks.inspect(&name).await.unwrap().unwrap().token, guard.token());
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    assert_eq!(locks.inspect(&name).await.unwrap(), None);
}

/// Locks whose names are below another's don't get in its way.
#[tokio::test]
#[ignore = "needs etcd: ./test engines"]
async fn nested_locks_are_not_in_the_line() {
    let (locks, name) = (Locks::connect(&url()).await.unwrap(), unique("above"));
    let mut below = Vec::new();
    // More than one page of them, all older.
    for number in 0..20 {
        let guard = locks.lock(format!("{name}/{number}")).try_acquire().await.unwrap();
        below.push(guard.unwrap());
    }
    let guard = locks.lock(&name).try_acquire().await.unwrap().expect("it is free");
    assert!(locks.lock(&name).try_acquire().await.unwrap().is_none());
    assert_eq!(locks.inspect(&name).await.unwrap().unwrap().line, Some(Vec::new()));
    let waiting = tokio::spawn(locks.lock(&name).acquire());
    in_line(&locks, &name, 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// A member that is down or silent is replaced by the next.
#[tokio::test]
#[ignore = "needs etcd: ./test engines"]
async fn calls_fail_over_to_another_member() {
    let server = format!("127.0.0.1:{}", Etcd::shared().port);
    let builder = || Locks::builder().timeout(Duration::from_secs(5));
    let down = format!("etcd://127.0.0.1:{},{server}", free_port());
    let locks = builder().connect(&down).await.unwrap();
    locks.lock(unique("down")).acquire().await.unwrap().release().await.unwrap();

    let (one, two) = (Proxy::start(server.clone()).await, Proxy::start(server).await);
    let both = format!("etcd://{},{}", one.address, two.address);
    let (locks, name) = (builder().connect(&both).await.unwrap(), unique("silent"));
    let guard = locks.lock(&name).ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock(&name).ttl(Duration::from_secs(6)).acquire());
    in_line(&locks, &name, 1).await;
    one.set(Mode::Silent);
    guard.extend(Duration::from_secs(60)).await.unwrap();
    guard.release().await.unwrap();
    // Its watch was on the silent member.
    let served = tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
    served.unwrap().unwrap().release().await.unwrap();
}

/// The leader of three members dies while a lock is held, and with it the member that the holder is
/// connected to: the lock stays held, can be extended and released, and tokens keep rising.
#[tokio::test]
#[ignore = "needs etcd: ./test engines"]
async fn held_lock_survives_the_death_of_the_leader() {
    let cluster = tokio::task::spawn_blocking(|| Etcd::cluster(3)).await.unwrap();
    let leads = |member: &&Etcd| {
        let status = etcdctl(member.port, &["endpoint", "status"]).output().unwrap();
        // Endpoint, id, version, size, whether it leads, ...
        String::from_utf8(status.stdout).unwrap().split(", ").nth(4) == Some("true")
    };
    let leader = cluster.iter().find(leads).expect("one leads");
    let others = cluster.iter().filter(|member| member.port != leader.port);
    let hosts: Vec<_> = std::iter::once(leader).chain(others).collect();
    let hosts: Vec<_> = hosts.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
    let builder = Locks::builder().timeout(Duration::from_secs(30));
    let locks = builder.connect(&format!("etcd://{}", hosts.join(","))).await.unwrap();
    let ttl = Duration::from_secs(60);
    let guard = locks.lock("seat").ttl(ttl).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock("seat").ttl(ttl).acquire());
    in_line(&locks, "seat", 1).await;
    leader.process.kill();
    guard.extend(ttl).await.unwrap();
    assert!(!waiting.is_finished(), "the lock was lost with the leader");
    assert_eq!(locks.inspect("seat").await.unwrap().unwrap().token, guard.token());
    let token = guard.token();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(90), waiting).await.unwrap();
    let next = next.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// The reply to the request for a lease is lost: it is not retried under another id, and the lock
/// is held all the same.
#[tokio::test]
#[ignore = "needs etcd: ./test engines"]
async fn lease_whose_reply_was_lost_is_used() {
    let port = Etcd::shared().port;
    let proxy = Proxy::start(format!("127.0.0.1:{port}")).await;
    let locks = Locks::connect(&format!("etcd://{}", proxy.address)).await.unwrap();
    let leases = || {
        let output = etcdctl(port, &["lease", "list"]).output().unwrap();
        let leases = String::from_utf8(output.stdout).unwrap();
        leases.lines().skip(1).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let before = leases();
    proxy.set(Mode::LoseAnswers);
    let name = unique("lost-lease");
    let taking = tokio::spawn(locks.lock(&name).ttl(Duration::from_secs(60)).acquire());
    // Other tests take leases too: wait for more than one check.
    while leases().is_subset(&before) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxy.cut();
    proxy.set(Mode::Open);
    let guard = taking.await.unwrap().unwrap();
    let seen = Locks::connect(&url()).await.unwrap().inspect(&name).await.unwrap().unwrap();
    assert_eq!((seen.token, seen.line), (guard.token(), Some(Vec::new())));
    guard.release().await.unwrap();
}

/// Each mistake gets an error in time that says what it is and what to try.
#[tokio::test]
#[ignore = "needs etcd: ./test engines"]
async fn configuration_mistakes_are_reported() {
    let port = Etcd::shared().port;
    let closed = free_port();
    let error = refusal(&format!("etcd://127.0.0.1:{closed}")).await;
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert_error_contains(&error, &[&format!("127.0.0.1:{closed}"), "refused", "is etcd running"]);

    // Another protocol, and a server that sends nothing.
    for greeting in [&b"-ERR unknown command\r\n"[..], b""] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(greeting).await.unwrap();
                open.push(stream);
            }
        });
        let error = refusal(&format!("etcd://{address}")).await;
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
        assert_error_contains(&error, &[&address.to_string()]);
    }

    // TLS to a port without it.
    let error = refusal(&format!("etcds://127.0.0.1:{port}")).await;
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");

    for (rest, words) in [
        (format!("127.0.0.1:{port}/path"), "no path"),
        (format!("127.0.0.1:{port}?cacert=x"), "unknown option `cacert`"),
        (format!("ana@127.0.0.1:{port}"), "USER:PASSWORD"),
    ] {
        assert_error_contains(&refusal(&format!("etcd://{rest}")).await, &[words]);
    }
    let error = refusal(&format!("etcds://127.0.0.1:{port}?cacert=/nowhere")).await;
    assert_error_contains(&error, &["cacert=/nowhere"]);
}

/// With users and passwords: a wrong one is refused, and a token that the cluster has forgotten is
/// replaced.
#[tokio::test]
#[ignore = "needs etcd: ./test engines"]
async fn users_and_passwords() {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.unwrap();
    let port = etcd.port;
    for arguments in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "ana:p@ss"],
        &["user", "add", "bo:none"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "--prefix=true", "readwrite", "app/"],
        &["user", "grant-role", "ana", "locks"],
        &["auth", "enable"],
    ] {
        let output = etcdctl(port, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let wrong = refusal(&format!("etcd://ana:wrong@127.0.0.1:{port}")).await;
    assert!(matches!(wrong, Error::Refused(_)), "{wrong:?}");
    assert_error_contains(&wrong, &["check the user and password"]);
    let nobody = refusal(&format!("etcd://127.0.0.1:{port}")).await;
    assert!(matches!(nobody, Error::Refused(_)), "{nobody:?}");
    assert_error_contains(&nobody, &["wants a user and password"]);

    let bo = Locks::connect(&format!("etcd://bo:none@127.0.0.1:{port}")).await.unwrap();
    let denied = bo.lock("app/seat").try_acquire().await;
    assert!(matches!(denied, Err(Error::Refused(_))), "{denied:?}");
    assert_error_contains(&denied.unwrap_err(), &["permission"]);

    let ana = Locks::connect(&format!("etcd://ana:p%40ss@127.0.0.1:{port}")).await.unwrap();
    let lock = || ana.lock("app/seat").ttl(Duration::from_secs(60));
    let guard = lock().acquire().await.unwrap();
    // Setting a password, even to the same one, invalidates all of the user's tokens.
    let arguments = ["--user=root:secret", "user", "passwd", "ana", "--interactive=false"];
    let changed = etcdctl(port, &arguments).stdin(Stdio::piped()).spawn();
    let mut changed = changed.unwrap();
    changed.stdin.take().unwrap().write_all(b"p@ss\n").unwrap();
    assert!(changed.wait().unwrap().success());
    assert!(lock().try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    lock().acquire().await.unwrap().release().await.unwrap();
}

/// `etcds://` checks the server's certificate, and presents its own.
#[tokio::test]
#[ignore = "needs etcd: ./test engines"]
async fn mutual_tls() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
            -subj /CN=ca -keyout ca.key -out ca.pem
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
            -subj /CN=etcd -keyout key.pem -out request.pem
        echo 'subjectAltName=IP:127.0.0.1' > names
        openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
            -extfile names -out cert.pem
    "#;
    let made = Command::new("sh").args(["-ec", script]).current_dir(&folder).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
    let options = [
        format!("--cert-file={cert}"),
        format!("--key-file={key}"),
        format!("--trusted-ca-file={ca}"),
        "--client-cert-auth".to_owned(),
    ];
    let etcd = tokio::task::spawn_blocking(move || {
        Etcd::start_secure(&options.each_ref().map(String::as_str))
    });
    let etcd = etcd.await.unwrap();
    let host = format!("127.0.0.1:{}", etcd.port);
    let url = format!("etcds://{host}?cacert={ca}&cert={cert}&key={key}");
    // It accepts connections before it is ready.
    let mut tries = 0;
    let locks = loop {
        match Locks::connect(&url).await {
            Ok(locks) => break locks,
            Err(error) => assert!(tries < 50, "{error}"),
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    locks.lock("seat").acquire().await.unwrap().release().await.unwrap();

    let unknown = refusal(&format!("etcds://{host}")).await;
    assert_error_contains(&unknown, &["certificate", "cacert=FILE"]);
    refusal(&format!("etcds://{host}?cacert={ca}")).await;
    refusal(&format!("etcd://{host}")).await;
    assert_error_contains(&refusal(&format!("etcds://{host}?cert={cert}")).await, &["go together"]);
}
