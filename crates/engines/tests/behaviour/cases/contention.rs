//! Many clients that want the same lock.

use crate::cases::through_proxies;
use crate::child::Helper;
use crate::engine::{Engine, unique};
use crate::proxy::{Mode, Proxy};
use holdfast_locks::{Error, Locks};
use std::time::Duration;
use tokio::task::JoinSet;

/// Adds `times` to a number in a file, one at a time under the lock: not atomic without it.
pub(crate) async fn increment(locks: &Locks, name: &str, file: &str, times: usize) {
    for _ in 0..times {
        let guard = locks.lock(name).acquire().await.unwrap();
        let number: usize = std::fs::read_to_string(file).unwrap().parse().unwrap();
        tokio::task::yield_now().await;
        // Replaced in one step: a reader without the lock would still see a complete number.
        let next = format!("{file}.next");
        std::fs::write(&next, (number + 1).to_string()).unwrap();
        std::fs::rename(&next, file).unwrap();
        guard.release().await.unwrap();
    }
}

/// Tasks of this process, and of a second one where processes share the engine, add to one number:
/// no addition is lost.
pub(crate) async fn exclusion(engine: &Engine) {
    const TIMES: usize = 4;
    let (locks, name) = (engine.connect().await, unique("exclusion"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("number").to_str().unwrap().to_owned();
    std::fs::write(&file, "0").unwrap();

    let settings = [
        ("URL", engine.url()),
        ("NAME", name.clone()),
        ("FILE", file.clone()),
        ("TIMES", "8".into()),
    ];
    let settings = settings.each_ref().map(|(key, value)| (*key, value.as_str()));
    let mut child = engine.is_shared().then(|| Helper::start("count", &settings));
    let mut tasks = JoinSet::new();
    for _ in 0..engine.tasks {
        let (locks, name, file) = (locks.clone(), name.clone(), file.clone());
        tasks.spawn(async move { increment(&locks, &name, &file, TIMES).await });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let mut expected = engine.tasks * TIMES;
    if let Some(child) = &mut child {
        assert_eq!(child.receive(), "done");
        expected += 8;
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), expected.to_string());
}

/// A held lock is refused to others, at once or after their wait, and granted to them when it is
/// free.
pub(crate) async fn waiting(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("waiting"));
    let others = engine.connect().await;
    let guard = locks.lock(&name).label("ana").acquire().await.unwrap();
    assert!(others.lock(&name).try_acquire().await.unwrap().is_none());
    let timed_out = others.lock(&name).wait(Duration::from_millis(300)).acquire().await;
    let Err(Error::TimedOut { holder }) = timed_out else { panic!("{timed_out:?}") };
    assert!(holder.is_none() || holder.as_deref() == Some("ana"), "{holder:?}");

    let waiter = {
        let (others, name) = (others.clone(), name.clone());
        tokio::spawn(async move { others.lock(name).acquire().await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    let free = others.lock(&name).try_acquire().await.unwrap();
    free.expect("a released lock is free").release().await.unwrap();
}

/// Waiters that arrived one after the other are served in that order, where the engine is fair.
pub(crate) async fn order(engine: &Engine) {
    const WAITERS: usize = 5;
    let (locks, name) = (engine.connect().await, unique("order"));
    if !locks.promises().fair.holds {
        return overtaking(engine, &locks, &name).await;
    }
    let guard = locks.lock(&name).acquire().await.unwrap();
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..WAITERS {
        let (lock, served) = (locks.lock(&name), served.clone());
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            served.send(number).unwrap();
            guard.release().await.unwrap();
        });
        in_line(&locks, &name, number + 1).await;
    }
    guard.release().await.unwrap();
    for expected in 0..WAITERS {
        assert_eq!(order.recv().await, Some(expected));
    }
}

/// On an engine that is not fair, no place in line is kept: a waiter whose network is slow is
/// overtaken by a later one. On a fair engine the first one would have the lock for ten minutes.
async fn overtaking(engine: &Engine, locks: &Locks, name: &str) {
    let guard = locks.lock(name).acquire().await.unwrap();
    let (proxies, first) = through_proxies(engine, Duration::from_secs(120)).await;
    let first = tokio::spawn(first.lock(name).ttl(Duration::from_secs(600)).acquire());
    in_line(locks, name, 1).await;
    proxies.iter().for_each(|proxy| proxy.set(Mode::Silent));
    let second = tokio::spawn(engine.connect().await.lock(name).acquire());
    in_line(locks, name, 2).await;
    guard.release().await.unwrap();
    let second = tokio::time::timeout(Duration::from_secs(60), second).await;
    let second = second.expect("a place in line was kept: this engine is fair").unwrap().unwrap();
    assert!(!first.is_finished());
    proxies.iter().for_each(Proxy::cut);
    proxies.iter().for_each(|proxy| proxy.set(Mode::Open));
    second.release().await.unwrap();
    let first = tokio::time::timeout(Duration::from_secs(120), first).await;
    first.expect("the first one is served at last").unwrap().unwrap().release().await.unwrap();
}

/// Waits until this many are waiting; engines that can't tell get a moment instead.
async fn in_line(locks: &Locks, name: &str, waiters: usize) {
    for _ in 0..200 {
        let seen = locks.inspect(name).await.unwrap().and_then(|lock| lock.line);
        match seen {
            Some(line) if line.len() < waiters => {
                tokio::time::sleep(Duration::from_millis(20)).await
            }
            Some(_) => return,
            None => return tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
    panic!("{waiters} waiters are not in line");
}

/// An acquire whose future is dropped leaves nothing in line, and nothing held.
pub(crate) async fn dropped_future(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("dropped"));
    for round in 0..10_u64 {
        let guard = engine.take(&locks, &name).await.unwrap();
        let waiting = locks.lock(&name).ttl(Duration::from_secs(600)).acquire();
        let _ = tokio::time::timeout(Duration::from_millis(round * 3), waiting).await;
        guard.release().await.unwrap();
        // Dropped in the middle of a take that nobody else is in the way of.
        let taking = locks.lock(&name).ttl(Duration::from_secs(600)).acquire();
        let _ = tokio::time::timeout(Duration::from_millis(round), taking).await;
    }
    let wait = Duration::from_secs(30);
    let guard = locks.lock(&name).wait(wait).acquire().await;
    guard.expect("dropped futures leave the lock free").release().await.unwrap();
}

/// A dropped guard is released soon, long before its lease would end.
pub(crate) async fn dropped_guard(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("guard"));
    drop(locks.lock(&name).ttl(Duration::from_secs(600)).acquire().await.unwrap());
    let guard = locks.lock(&name).wait(Duration::from_secs(30)).acquire().await;
    guard.expect("a dropped guard is released").release().await.unwrap();
}

/// Each name is a separate lock, whatever characters it has; one that the engine does not accept is
/// refused with an error, and never confused with another.
pub(crate) async fn many_names(engine: &Engine) {
    let (locks, part) = (engine.connect().await, unique("name"));
    let names = [
        format!("{part}/a"),
        format!("{part}/a/b"),
        format!("{part}/A"),
        format!("{part} a"),
        format!("{part}%2fa"),
        format!("{part}'\"--;"),
        format!("{part}ä"),
        format!("{part}*"),
    ];
    let mut guards = Vec::new();
    for name in &names {
        match locks.lock(name).try_acquire().await {
            Ok(guard) => guards.push(guard.unwrap_or_else(|| panic!("{name} is not free"))),
            Err(Error::Unsupported(why)) => assert!(!why.is_empty()),
            Err(error) => panic!("{name}: {error}"),
        }
    }
    assert!(guards.len() >= 2, "hardly any name is taken");
    for guard in guards {
        guard.release().await.unwrap();
    }
    for bad in [String::new(), "x".repeat(513), "a\0b".to_owned()] {
        let refused = locks.lock(&bad).try_acquire().await;
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    }
}

/// Tokens rise from holder to holder; an engine without tokens returns none.
pub(crate) async fn tokens(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("tokens"));
    let (mut last, promised) = (None, locks.promises().token.holds);
    for _ in 0..5 {
        let guard = locks.lock(&name).acquire().await.unwrap();
        assert_eq!(guard.token().is_some(), promised);
        assert!(!promised || guard.token() > last, "{:?} after {last:?}", guard.token());
        last = guard.token();
        guard.release().await.unwrap();
    }
    // Also when the lease has expired.
    let guard = locks.lock(&name).ttl(engine.ttl).fixed().acquire().await.unwrap();
    let other = engine.take(&locks, &name).await.unwrap();
    assert!(!promised || other.token() > guard.token());
}

/// People can see who holds a lock.
pub(crate) async fn inspection(engine: &Engine) {
    let (locks, name) = (engine.connect().await, unique("inspection"));
    assert_eq!(locks.inspect(&name).await.unwrap(), None);
    let guard = locks.lock(&name).label("ana").acquire().await.unwrap();
    let seen = locks.inspect(&name).await.unwrap().expect("it is held");
    assert_eq!(seen.holder.as_deref(), Some("ana"));
    assert_eq!(seen.token, guard.token());
    assert!(seen.line.is_none_or(|line| line.is_empty()));
    guard.release().await.unwrap();
    assert_eq!(locks.inspect(&name).await.unwrap(), None);
}
