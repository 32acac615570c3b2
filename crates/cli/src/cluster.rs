//! Commands that work on a node's data folder while the node is stopped: `new-key`, `restore`,
//! `rejoin`, `accept-move`.

use crate::serve::runtime;
use crate::settings::Address;
use crate::stderr::eprint_line;
use crate::table::say;
use clap::Args;
use holdfast_node::NodeId;
use holdfast_server::{ClusterKey, DataDir, First, Source, restore};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn new_key() -> Result<(), String> {
    say(&ClusterKey::draw().to_line()).map_err(|error| error.to_string())
}

/// The new cluster has a new id and key, and one node; others join it. No token of the old cluster
/// comes again, all sessions end, and what was held is marked "needs recovery". Restore a backup
/// once: two clusters restored from one may draw the same tokens.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast restore --from holdfast.backup --data-dir data-2
  holdfast restore --accept-loss data --data-dir data-2")]
pub(crate) struct Restore {
    /// The backup
    #[arg(long, value_name = "FILE", required_unless_present = "accept_loss")]
    from: Option<PathBuf>,
    /// Instead of a backup: the damaged folder of a cluster of one; what can't be read is lost
    #[arg(long, value_name = "FOLDER", conflicts_with = "from")]
    accept_loss: Option<PathBuf>,
    /// The folder of the new cluster's first node
    #[arg(long, value_name = "FOLDER")]
    data_dir: PathBuf,
    #[command(flatten)]
    address: Address,
}

impl Restore {
    pub(crate) fn run(self) -> Result<(), String> {
        let config = self.address.config(self.data_dir.clone(), First::Alone)?;
        let source = match (&self.from, &self.accept_loss) {
            (Some(file), _) => Source::Backup(file),
            (None, Some(folder)) => Source::Damaged(folder),
            (None, None) => return Err("use --from FILE".to_owned()),
        };
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let done = restore(&source, &config.place()?, unix_s)?;
        let restored = done.restored;
        if let Some(lost) = done.lost {
            eprint_line!("lost: {lost}");
        }
        eprint_line!(
            "restored everything up to entry {}: {} sessions ended, {} waits ended, {} holders \
             ended with their sessions, {} still hold; what was held needs recovery; tokens go on \
             from {}",
            done.taken_at,
            restored.sessions_ended,
            restored.waits_ended,
            restored.holders_ended,
            restored.still_held,
            restored.counter
        );
        eprint_line!(
            "if this backup was restored before, or is again: both clusters may draw the same \
             tokens, so they must not share anything that a fence protects"
        );
        eprint_line!("{}", start_with(&self.data_dir, None, &self.address));
        Ok(())
    }
}

/// Its old files are set aside and never used again. It gets a new id and everything from the
/// other nodes; when it has caught up it gets its vote, and its old id is removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast rejoin --data-dir data --join 10.0.0.1:7410,10.0.0.2:7410
  holdfast serve --data-dir data")]
pub(crate) struct Rejoin {
    /// The folder of the damaged node
    #[arg(long, value_name = "FOLDER")]
    data_dir: PathBuf,
    /// The peer addresses of other members
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', required = true)]
    join: Vec<String>,
    /// The cluster's key; by default `cluster.key` in the data folder
    #[arg(long, value_name = "FILE")]
    cluster_key: Option<PathBuf>,
    /// The old id, if it can't be read from the folder
    #[arg(long, value_name = "ID")]
    replaces: Option<u64>,
    #[command(flatten)]
    address: Address,
}

impl Rejoin {
    pub(crate) fn run(self) -> Result<(), String> {
        let mut config = self.address.config(self.data_dir.clone(), First::Alone)?;
        config.key.clone_from(&self.cluster_key);
        let place = config.place()?;
        let replaces = self.replaces.map(NodeId);
        let done = runtime()?.block_on(place.rejoin(&self.join, replaces))?;
        eprint_line!(
            "node {} comes back as node {}; its old files are in {}",
            done.replaces,
            done.node,
            done.aside.display()
        );
        eprint_line!("{}", start_with(&self.data_dir, self.cluster_key.as_deref(), &self.address));
        Ok(())
    }
}

/// A node does not start in a folder that looks like a copy: its original may run, or may have
/// promised what the copy does not know. Accept a move only if the node was stopped when its folder
/// was moved, and will never be started from the old place again.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast accept-move --data-dir data
  holdfast serve --data-dir data")]
pub(crate) struct AcceptMove {
    /// The folder that was moved
    #[arg(long, value_name = "FOLDER")]
    data_dir: PathBuf,
}

impl AcceptMove {
    pub(crate) fn run(self) -> Result<(), String> {
        let node = DataDir::accept_move(&self.data_dir)?;
        eprint_line!("node {node} may be started in {} now", self.data_dir.display());
        Ok(())
    }
}

/// The command to run next, ready to paste.
fn start_with(folder: &Path, key: Option<&Path>, address: &Address) -> String {
    let key = key.map_or_else(String::new, |key| format!(" --cluster-key {}", key.display()));
    format!("start it with: holdfast serve --data-dir {}{key}{}", folder.display(), address.words())
}
