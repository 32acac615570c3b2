//! Holdfast through its Rust client.

use super::{Client, SESSION_TTL, Step};
use crate::peers::Target;
use holdfast_client::Guard;

pub(crate) struct Holdfast {
    session: holdfast_client::Client,
    guard: Option<Guard>,
}

impl Holdfast {
    /// A client with this session, which may be shared with others.
    pub(crate) fn new(session: holdfast_client::Client) -> Self {
        Self { session, guard: None }
    }
}

/// A session on its own connection, to the first of these ports that answers.
pub(crate) async fn session(ports: &[u16]) -> Result<holdfast_client::Client, String> {
    let servers: Vec<String> =
        ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
    let session = holdfast_client::Client::builder().session_ttl(SESSION_TTL).connect(servers);
    session.await.map_err(|error| format!("can't connect: {error}"))
}

/// `count` sessions, spread over the nodes.
pub(crate) async fn sessions(
    target: &Target,
    count: usize,
) -> Result<Vec<holdfast_client::Client>, String> {
    let mut sessions = Vec::with_capacity(count);
    for number in 0..count {
        sessions.push(session(&target.ports_from(number)).await?);
    }
    Ok(sessions)
}

/// `count` clients that share these sessions, and thus their connections.
pub(crate) fn sharing(sessions: &[holdfast_client::Client], count: usize) -> Vec<Box<dyn Client>> {
    let shared = sessions.iter().cycle().take(count);
    shared.map(|session| Box::new(Holdfast::new(session.clone())) as Box<dyn Client>).collect()
}

impl Client for Holdfast {
    fn acquire<'a>(&'a mut self, name: &'a str) -> Step<'a> {
        Box::pin(async move {
            let guard = self.session.lock(name).acquire().await;
            self.guard = Some(guard.map_err(|error| format!("acquire: {error}"))?);
            Ok(())
        })
    }

    fn release(&mut self) -> Step<'_> {
        Box::pin(async move {
            let guard = self.guard.take().ok_or("nothing is held")?;
            guard.release().await.map_err(|error| format!("release: {error}"))
        })
    }
}
