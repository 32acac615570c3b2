//! ZooKeeper: an ephemeral sequential node for each place in line, watched by the one behind it.
//!
//! The nodes are those of Curator's `InterProcessMutex` on the path `/CHROOT/NAME`, so programs
//! that use Curator and programs that use this library exclude each other.
//!
//! The TLS options have the same names as in kazoo: `use_ssl=true`, `ca` for the file of
//! authorities, `certfile` and `keyfile` for the client's own certificate.

mod acquire;
mod hold;
mod inspect;
mod line;
mod session;
mod tls;

use crate::driver::{Acquired, Driver, Hold, Request, Step};
use crate::error::Error;
use crate::locks::Inspection;
use crate::promises::{Promise, Promises};
use crate::url::EngineUrl;
use session::Sessions;
use std::sync::Arc;
use std::time::Duration;

pub(in crate::drivers) static PROMISES: Promises = Promises {
    engine: "zookeeper",
    recipe: "ephemeral",
    fair: Promise::yes("waiters are served in the order of their sequence numbers"),
    token: Promise::yes("the czxid of the lock's node"),
    survives_failover: Promise::yes("every write is on a majority of the servers"),
    reports_death: Promise::no("a node whose session expired is gone, like one that was deleted"),
    detachable: Promise::no("the lock lives by a session of this process"),
    lost_in_time: Promise::yes(
        "the holder counts 2/3 of the session timeout from before it sent the renewal",
    ),
    clock: "the ZooKeeper leader's; a new leader starts every session's time over",
    after_crash: "the lock stays held until the session times out: the TTL, within the server's limits",
    after_disconnect: "nothing is lost if the client is back within the session timeout",
    late_request: "nothing: the server closes a connection that its session has left",
};

const PORT: u16 = 2181;

pub(super) async fn connect(url: &EngineUrl, timeout: Duration) -> Result<Arc<dyn Driver>, Error> {
    url.check_options(&["use_ssl", "ca", "certfile", "keyfile"])?;
    if url.hosts.is_empty() {
        return Err(Error::BadUrl("the host is missing: zookeeper://127.0.0.1:2181".to_owned()));
    }
    let root = url.path.trim_end_matches('/');
    if !root.is_empty() {
        check_path(root).map_err(|why| Error::BadUrl(format!("the path `/{root}` {why}")))?;
    }
    let root = if root.is_empty() { String::new() } else { format!("/{root}") };
    let digest = match (&url.user, &url.password) {
        (Some(user), Some(password)) => Some(format!("{user}:{password}")),
        (None, None) => None,
        _ => return Err(Error::BadUrl("write zookeeper://USER:PASSWORD@HOST".to_owned())),
    };
    let hosts = url.hosts.iter().map(|host| host.authority(PORT)).collect();
    let sessions = Arc::new(Sessions::new(hosts, digest, tls::options(url)?, timeout));
    sessions.connect().await?;
    Ok(Arc::new(ZooKeeper { sessions, root }))
}

struct ZooKeeper {
    sessions: Arc<Sessions>,
    /// With its leading slash; empty without a chroot.
    root: String,
}

impl ZooKeeper {
    /// The folder that contains a lock's nodes.
    fn folder(&self, name: &str) -> Result<String, Error> {
        let bad = |why: &str| Error::Unsupported(format!("the name `{name}` {why}"));
        check_path(name).map_err(|why| bad(&why))?;
        if self.root.is_empty() && name.split('/').next() == Some("zookeeper") {
            return Err(bad("is ZooKeeper's own; use another, or a path in the URL"));
        }
        if name.split('/').any(|part| line::number(part).is_some()) {
            return Err(bad("looks like a place in the line of another lock"));
        }
        Ok(format!("{}/{name}", self.root))
    }
}

impl Driver for ZooKeeper {
    fn promises(&self) -> &'static Promises {
        &PROMISES
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        self.folder(&request.name).map(drop)
    }

    fn acquire<'a>(&'a self, request: &'a Request) -> Step<'a, Acquired> {
        Box::pin(async move {
            acquire::acquire(&self.sessions, self.folder(&request.name)?, request).await
        })
    }

    fn inspect<'a>(&'a self, name: &'a str) -> Step<'a, Option<Inspection>> {
        Box::pin(async move { inspect::inspect(&self.sessions, self.folder(name)?).await })
    }

    fn attach<'a>(&'a self, _name: &'a str, _proof: &'a str) -> Step<'a, Arc<dyn Hold>> {
        let why = PROMISES.detachable.because;
        Box::pin(async move { Err(Error::Unsupported(format!("it can't be attached: {why}"))) })
    }
}

/// ZooKeeper's rules for paths, without the leading slash.
fn check_path(path: &str) -> Result<(), String> {
    if path.split('/').any(str::is_empty) {
        return Err("starts, ends or goes on with an empty part: ZooKeeper has no such path".into());
    }
    if path.split('/').any(|part| part == "." || part == "..") {
        return Err("has a part `.` or `..`: ZooKeeper has no such path".into());
    }
    let refused = |c: char| {
        matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}'
            | '\u{fff0}'..='\u{ffff}')
    };
    match path.chars().find(|c| refused(*c)) {
        Some(c) => Err(format!("has the character {c:?}, which ZooKeeper refuses")),
        None => Ok(()),
    }
}
