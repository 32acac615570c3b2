//! One instance: database, locks, page and API, from start to an orderly end.

use crate::api;
use crate::box_office::{BoxOffice, TURNS};
use crate::connections;
use crate::embedded::{self, Embedded};
use crate::instances::{self, Membership};
use crate::live::Live;
use crate::payment::PaymentService;
use crate::seat_locks::{self, SeatLocks};
use crate::settings::{LockType, Serve};
use crate::store::{Store, StoreError};
use holdfast_locks::{Error, Locks};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

/// How long to wait at the start for a database or lock service that is not there yet.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// How long open connections get to finish at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How often payments of instances that died are finished.
const SETTLE_EVERY: Duration = Duration::from_secs(5);

/// The locks of this instance.
struct Engine {
    seats: Arc<SeatLocks>,
    embedded: Option<Embedded>,
    /// What a further instance needs to share them.
    lock_url: String,
}

pub(crate) async fn serve(settings: Serve) -> Result<(), String> {
    check(&settings)?;
    let listener = TcpListener::bind(SocketAddr::new(settings.listen, settings.port)).await;
    let listener = listener.map_err(|error| {
        format!("can't listen on port {}: {error}; choose another with PORT", settings.port)
    })?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;

    let url = settings.database.url();
    // A file is there or it is not; a server may still be starting.
    let may_pass = |_: &StoreError| url.starts_with("postgres");
    let store = patiently("the database", || Store::open(&url, settings.total_tickets), may_pass);
    let store = Arc::new(store.await.map_err(|error| error.to_string())?);
    let engine = engine(&settings, &store).await?;
    let seats = engine.as_ref().map(|engine| engine.seats.clone());
    let instance = format!("{}-{}", address.port(), &crate::random_hex()[..6]);
    let lock_url = engine.as_ref().map_or_else(String::new, |engine| engine.lock_url.clone());
    let joining = Membership::join(&store, seats.clone(), &instance, settings.lock_type, &lock_url);
    let membership = joining.await?;

    let office = Arc::new(BoxOffice {
        store: store.clone(),
        lock_type: settings.lock_type,
        seats: seats.clone(),
        payments: PaymentService {
            store: store.clone(),
            delay: settings.payment_delay(),
            failure_rate: settings.payment_failure_rate,
        },
        reserve_seconds: settings.reserve_seconds,
        turns: Semaphore::new(TURNS),
        line: membership.line.clone(),
        instance,
    });
    let live = Live::start(office.clone());
    let beating = tokio::spawn(membership.clone().stay());
    if settings.lock_type != LockType::None {
        tokio::spawn(settle(store.clone()));
    }
    welcome(&settings, address, engine.as_ref(), &store).await?;

    let app = api::router(office, live);
    let stopping = std::pin::pin!(stop_signal());
    let (stop, stopped) = watch::channel(false);
    let max = connections::connections_max();
    let mut serving = tokio::spawn(connections::serve(listener, app, max, stopped));
    tokio::select! {
        ended = &mut serving => return Err(format!("the web server has ended: {ended:?}")),
        () = stopping => {}
    }
    let _ = stop.send(true);
    // A page that is open somewhere keeps its connection.
    if timeout(STOP_TIMEOUT, &mut serving).await.is_err() {
        serving.abort();
    }
    beating.abort();
    membership.leave().await;
    if let Some(embedded) = engine.and_then(|engine| engine.embedded) {
        embedded.stop().await;
    }
    Ok(())
}

/// Refuses settings that can't work, before anything is touched.
fn check(settings: &Serve) -> Result<(), String> {
    Store::check_url(&settings.database.url())?;
    let lock_type = settings.lock_type;
    if !settings.lock_url.is_empty() {
        return lock_type.engine_url(&settings.lock_url).map(drop);
    }
    if lock_type.schemes().is_empty() || embedded::has_door(lock_type) {
        return Ok(());
    }
    let example = match lock_type {
        LockType::Postgres => "postgres://user@127.0.0.1/locks",
        LockType::Etcd => "etcd://127.0.0.1:2379",
        _ => "cassandra://127.0.0.1:9042/ticketing",
    };
    Err(format!(
        "LOCK_TYPE={lock_type} needs a LOCK_URL, for example {example}: the embedded Holdfast has no \
         such locks"
    ))
}

/// Connects to the locks; `None` for the controls.
async fn engine(settings: &Serve, store: &Store) -> Result<Option<Engine>, String> {
    let lock_type = settings.lock_type;
    if lock_type.schemes().is_empty() {
        return Ok(None);
    }
    let mut embedded = None;
    let lock_url = if settings.lock_url.is_empty() {
        let folder = settings.database.holdfast_dir();
        let started = match Embedded::start(&folder).await {
            Ok(started) => started,
            Err(error) => return Err(instances::explain_embedded(store, lock_type, &error).await),
        };
        let url = started.url(lock_type);
        let url = url.ok_or_else(|| format!("Holdfast has no door for LOCK_TYPE={lock_type}"))?;
        embedded = Some(started);
        url
    } else {
        lock_type.engine_url(&settings.lock_url)?
    };
    let connect = |url: String| async move {
        Locks::builder().timeout(seat_locks::TIMEOUT).connect(&url).await
    };
    let transient = |error: &Error| matches!(error, Error::Unreachable(_));
    let locks = patiently("the lock service", || connect(lock_url.clone()), transient).await;
    let locks = locks.map_err(|error| error.to_string())?;
    // Holdfast's own protocol shows tokens and lines that clients of other doors can't see.
    let viewer = match embedded.as_ref().and_then(|embedded| embedded.url(LockType::Native)) {
        Some(native) => connect(native).await.map_err(|error| error.to_string())?,
        None => locks.clone(),
    };
    let ttl = Duration::from_secs(settings.reserve_seconds);
    let seats = Arc::new(SeatLocks::new(locks, viewer, store.id(), ttl));
    let lock_url = if embedded.is_some() { lock_url } else { without_password(&settings.lock_url) };
    Ok(Some(Engine { seats, embedded, lock_url }))
}

/// Repeats a call whose error may pass, for a while.
async fn patiently<T, E: std::fmt::Display, F: Future<Output = Result<T, E>>>(
    what: &str,
    call: impl Fn() -> F,
    may_pass: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let give_up = Instant::now() + START_TIMEOUT;
    loop {
        match call().await {
            Err(error) if may_pass(&error) && Instant::now() < give_up => {
                tracing::warn!("waiting for {what}: {error}");
                sleep(RETRY_EVERY).await;
            }
            done => return done,
        }
    }
}

async fn settle(store: Arc<Store>) {
    loop {
        if let Err(error) = store.settle_payments().await {
            tracing::warn!("payments are not settled: {error}");
        }
        sleep(SETTLE_EVERY).await;
    }
}

async fn welcome(
    settings: &Serve,
    address: SocketAddr,
    engine: Option<&Engine>,
    store: &Store,
) -> Result<(), String> {
    let Serve { lock_type, database, .. } = settings;
    let port = address.port();
    println!("Ticketing: http://localhost:{port}");
    let tickets = store.count("tickets").await.map_err(|error| error.to_string())?;
    println!("  database   {} ({tickets} tickets)", without_password(&database.url()));
    match engine {
        None => {
            println!("  locks      none: LOCK_TYPE={lock_type} is here to show what goes wrong")
        }
        Some(Engine { embedded, lock_url, seats, .. }) => {
            let how = if embedded.is_some() { "an embedded Holdfast" } else { "a lock service" };
            println!("  locks      {lock_type}, {how} at {lock_url}");
            let crash = seats.promises().after_crash;
            if !seats.promises().detachable.holds {
                println!("             an instance that crashes frees its seats ({crash})");
            }
            println!("  another instance:");
            println!("    {}", another(port, settings, lock_url));
        }
    }
    println!("Press Ctrl-C to stop.");
    Ok(())
}

/// A command that starts a further instance. A URL with a password is not shown: the shell takes it from
/// the environment.
fn another(port: u16, settings: &Serve, lock_url: &str) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "ticketing".into());
    let setting = |name: &str, url: &str| {
        let secret = without_password(url) != url && url.contains('@');
        if secret { format!("{name}=\"${name}\"") } else { format!("{name}={}", quoted(url)) }
    };
    // One of the embedded Holdfast is not in the settings.
    let own = if settings.lock_url.is_empty() { lock_url } else { &settings.lock_url };
    format!(
        "PORT={} {} LOCK_TYPE={} {} {}",
        port.saturating_add(1),
        setting("DATABASE_URL", &settings.database.url()),
        settings.lock_type,
        setting("LOCK_URL", own),
        quoted(&program.display().to_string()),
    )
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/:._-@,=%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A URL as it may be shown.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let path = path.split('?').next().unwrap_or_default();
    if path.is_empty() {
        format!("{scheme}://{hosts}")
    } else {
        format!("{scheme}://{hosts}/{path}")
    }
}

async fn stop_signal() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                terminate.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{quoted, without_password};

    #[test]
    fn printed_command_can_be_pasted() {
        for (word, shown) in [
            ("redis://127.0.0.1:7401", "redis://127.0.0.1:7401"),
            ("/opt/a b/ticketing", "'/opt/a b/ticketing'"),
            ("etcd://a?x=1&y=2", "'etcd://a?x=1&y=2'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("sqlite:a/b.db", "sqlite:a/b.db"),
            ("redis://:secret@host:6379/0?x=secret", "redis://host:6379/0"),
            ("postgres://ana:secr@t@db/app", "postgres://db/app"),
            ("holdfast://a:1,b:2", "holdfast://a:1,b:2"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
