//! ZooKeeper with the usual recipe, as in Curator's mutex: an ephemeral sequential child of the
//! lock's directory. The lowest number holds the lock; each of the others watches the one before
//! it.

use super::{Client, SESSION_TTL, Step};
use std::collections::HashSet;
use zookeeper_client::{Acls, CreateMode, CreateOptions, Error};

/// The number of digits at the end of a child's name.
const DIGITS: usize = 10;

pub(crate) struct ZooKeeper {
    client: zookeeper_client::Client,
    /// Directories that are known to exist.
    made: HashSet<String>,
    /// The child that holds the lock.
    held: Option<String>,
}

/// How many directories a client remembers. Those it forgets, it creates again.
const MADE_MAX: usize = 1_000;

impl ZooKeeper {
    pub(crate) async fn connect(ports: &[u16]) -> Result<Self, String> {
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let connector = zookeeper_client::Client::connector().with_session_timeout(SESSION_TTL);
        let client = connector.connect(&hosts.join(",")).await;
        let client = client.map_err(|error| format!("zookeeper: connect: {error}"))?;
        Ok(Self { client, made: HashSet::new(), held: None })
    }

    async fn draw(&mut self, name: &str) -> Result<(), Error> {
        let folder = format!("/{}", name.replace('/', "-"));
        if !self.made.contains(&folder) {
            let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
            match self.client.create(&folder, b"", &options).await {
                Ok(_) | Err(Error::NodeExists) => {}
                Err(error) => return Err(error),
            }
            if self.made.len() >= MADE_MAX {
                self.made.clear();
            }
            self.made.insert(folder.clone());
        }
        let options: CreateOptions<'_> =
            CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let prefix = format!("{folder}/lock-");
        let (_, number) = self.client.create(&prefix, b"", &options).await?;
        let own = format!("{prefix}{number}");
        // Each turn sees one earlier child go, and there are finitely many.
        while let Some(before) = self.before(&folder, &own).await? {
            match self.client.get_and_watch_data(&before).await {
                Ok((_, _, watcher)) => {
                    watcher.changed().await;
                }
                Err(Error::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
        self.held = Some(own);
        Ok(())
    }

    /// The child directly before this one; `None` if it is the first.
    async fn before(&self, folder: &str, own: &str) -> Result<Option<String>, Error> {
        let children = self.client.list_children(folder).await?;
        let before = children.iter().filter(|child| number(child) < number(own));
        let before = before.max_by_key(|child| number(child));
        Ok(before.map(|child| format!("{folder}/{child}")))
    }
}

fn number(child: &str) -> &str {
    child.get(child.len().saturating_sub(DIGITS)..).unwrap_or(child)
}

impl Client for ZooKeeper {
    fn acquire<'a>(&'a mut self, name: &'a str) -> Step<'a> {
        Box::pin(async move {
            self.draw(name).await.map_err(|error| format!("zookeeper: acquire: {error}"))
        })
    }

    fn release(&mut self) -> Step<'_> {
        Box::pin(async move {
            let own = self.held.take().ok_or("nothing is held")?;
            let deleted = self.client.delete(&own, None).await;
            deleted.map_err(|error| format!("zookeeper: release: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_ordered_by_their_numbers() {
        assert_eq!(number("lock-0000000012"), "0000000012");
        assert!(number("lock-0000000009") < number("/a/lock-0000000010"));
        assert_eq!(number("short"), "short");
    }
}
