//! `holdfast members`: changes who is in the cluster.

use super::status::{Cluster, Member};
use super::{Common, print_json};
use crate::exit::{Exit, Problem};
use crate::stderr::eprint_line;
use crate::table::say;
use clap::{Args, Subcommand};
use serde_json::json;

/// The default port for peers.
const PEER_PORT: u16 = 7410;

/// `add` prints the command to run on the new machine, which then joins.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  What to type on the new machine:
    holdfast members add 10.0.0.4

  Node 3 is dead, and node 5 has joined in its place:
    holdfast members replace 3 --by 5

  Let node 2 lead:
    holdfast members transfer 2")]
pub(crate) struct Members {
    #[command(subcommand)]
    what: MembersCommand,
}

#[derive(Debug, Subcommand)]
enum MembersCommand {
    /// Print the command that makes a new machine join
    Add {
        /// The new machine's address
        host: String,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a node permanently; it then stops
    Remove {
        /// The node's number
        node: u64,
        /// Even if no majority of the remaining nodes answers
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Promote a learner to a voter; a node that joined is promoted automatically
    Promote {
        /// The node's number
        node: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a node that another one replaces
    Replace {
        /// The number of the node to remove
        node: u64,
        /// The number of the node that replaces it; without it, prints what to do first
        #[arg(long, value_name = "NODE")]
        by: Option<u64>,
        /// Even if no majority of the remaining nodes answers
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Transfer leadership to another node
    Transfer {
        /// The node's number
        node: u64,
        #[command(flatten)]
        common: Common,
    },
}

impl Members {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        match &self.what {
            MembersCommand::Add { host, common } => add(host, common),
            MembersCommand::Remove { node, force, common } => {
                let cluster = Cluster::ask(&common.server.http()?)?;
                remove(&cluster, *node, *force, common)
            }
            MembersCommand::Promote { node, common } => {
                change("promote", *node, "has its vote", common)
            }
            MembersCommand::Replace { node, by, force, common } => {
                replace(*node, *by, *force, common)
            }
            MembersCommand::Transfer { node, common } => change("transfer", *node, "leads", common),
        }
    }
}

fn files_of_a_member(password: bool, encrypted: bool) -> &'static str {
    match (password, encrypted) {
        (false, false) => "the cluster's key",
        (true, false) => "the cluster's key and the password",
        (false, true) => "the cluster's key and the new node's certificate (`holdfast certs node`)",
        (true, true) => {
            "the cluster's key, the password and the new node's certificate (`holdfast certs node`)"
        }
    }
}

/// Only the command goes to stdout: it may be piped to a shell on the other machine.
fn add(host: &str, common: &Common) -> Result<Exit, Problem> {
    if host.is_empty() || host.starts_with('-') || host.contains(char::is_whitespace) {
        return Err(Problem::usage(format!("`{host}` is not an address"))
            .hint("write the new machine's own: holdfast members add 10.0.0.4"));
    }
    let cluster = Cluster::ask(&common.server.http()?)?;
    let peers: Vec<&str> =
        cluster.nodes.iter().filter(|node| node.answers).map(|node| node.peer.as_str()).collect();
    let join = peers.join(",");
    let mut line = format!(
        "holdfast serve --data-dir data --cluster-key cluster.key --listen {host} --join {join}"
    );
    let (password, encrypted) = (common.server.password()?.is_some(), common.server.is_encrypted());
    if password {
        line += " --password-file password";
    }
    if encrypted {
        line += " --tls-cert node.pem --tls-key node-key.pem --tls-ca ca.pem";
    }
    if !password || !encrypted {
        line += " --insecure";
    }
    if common.json {
        return print_json(&json!({ "host": host, "join": peers, "command": line }));
    }
    eprint_line!(
        "On {host}, in a folder with {}, type this.\nIt follows without a vote first, and gets its \
         vote when it has caught up: `holdfast status` shows it.",
        files_of_a_member(password, encrypted)
    );
    say(&format!("{line}\n"))?;
    Ok(Exit::Success)
}

fn member(cluster: &Cluster, id: u64) -> Result<&Member, Problem> {
    cluster.member(id).ok_or_else(|| {
        let ids: Vec<String> = cluster.nodes.iter().map(|node| node.id.to_string()).collect();
        Problem::new(Exit::NotAcquired, format!("node {id} is not a member"))
            .hint(format!("the members are {}: `holdfast status` shows them", ids.join(", ")))
    })
}

fn remove(cluster: &Cluster, id: u64, force: bool, common: &Common) -> Result<Exit, Problem> {
    member(cluster, id)?;
    let sent = if force { json!({ "node": id, "force": true }) } else { json!({ "node": id }) };
    let http = common.server.http()?;
    let said = http.post("/v1/members/remove", &sent).map_err(|problem| {
        if problem.message.contains("would be no majority") {
            problem.hint("start those nodes first, or use --force if they come back soon")
        } else {
            problem
        }
    })?;
    super::answer(common.json, &said, || format!("node {id} is removed"))
}

fn replace(id: u64, by: Option<u64>, force: bool, common: &Common) -> Result<Exit, Problem> {
    let cluster = Cluster::ask(&common.server.http()?)?;
    let old = member(&cluster, id)?;
    let Some(by) = by else {
        let host = old.peer.rsplit_once(':').map_or(old.peer.as_str(), |(host, _)| host);
        let port = old.peer.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port = if port == Some(PEER_PORT) { "" } else { " (mind its --port)" };
        return Err(Problem::usage(format!("which node has joined in place of node {id}?")).hint(
            format!(
                "first `holdfast members add HOST`{port}, as {host} was; when it votes, \
                 `holdfast members replace {id} --by ITS-NUMBER`"
            ),
        ));
    };
    let new = member(&cluster, by)?;
    let wrong = if by == id {
        Some("a node can't replace itself".to_owned())
    } else if new.role == "learner" {
        Some(format!("node {by} has no vote yet: it has not caught up"))
    } else if !new.answers {
        Some(format!("node {by} does not answer"))
    } else {
        None
    };
    match wrong {
        Some(why) => Err(Problem::new(Exit::NotAcquired, why)
            .hint("`holdfast status` shows when it is a follower and not behind")),
        None => remove(&cluster, id, force, common),
    }
}

fn change(what: &str, node: u64, done: &str, common: &Common) -> Result<Exit, Problem> {
    let http = common.server.http()?;
    let said = http.post(&format!("/v1/members/{what}"), &json!({ "node": node }))?;
    super::answer(common.json, &said, || format!("node {node} {done}"))
}
