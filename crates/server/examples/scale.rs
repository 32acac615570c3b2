//! Prints what a million leases cost a node: how long it takes to fill, to restart, and to take
//! over as leader. On real disks and sockets, three nodes in one process.
//!
//! `cargo run --release -p holdfast-server --example scale [-- LEASES]`
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program that measures, and stops where it can't"
)]

use holdfast_core::{
    Acquire, Answer, Command, Door, Label, Lease, LockName, Mode, OpenSession, Secret, SessionKind,
    TicketStatus, Wait,
};
use holdfast_node::NodeId;
use holdfast_server::{ClusterKey, Contact, DataDir, Engine, First, RunningNode};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ASKERS: u64 = 512;
const SECRET: Secret = Secret([7; 16]);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

#[tokio::main]
async fn main() {
    let leases: u64 = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("a number"));
    let folder = tempfile::tempdir().unwrap();
    one_node(folder.path(), leases).await;
    three_nodes(folder.path(), leases).await;
}

async fn one_node(folder: &Path, leases: u64) {
    println!("one node, {leases} locks held by a deadline each");
    let place = DataDir {
        folder: folder.join("one"),
        key: None,
        first: First::Alone,
        contact: Contact::default(),
        tls: None,
    };
    let node = RunningNode::start(&place, listener().await).await.unwrap();
    let begun = Instant::now();
    fill(&node.engine, leases, Kind::Deadlines).await;
    println!("  filled in               {:>8.2} s", begun.elapsed().as_secs_f64());
    node.stop().await;
    // The second time everything is in a snapshot and little in the log.
    for what in ["from snapshot and log  ", "from a fresh snapshot  "] {
        let begun = Instant::now();
        let node = RunningNode::start(&place, listener().await).await.unwrap();
        let opened = begun.elapsed();
        let held = node.engine.read(|node| node.state().counts().holders).await.unwrap();
        assert_eq!(held as u64, leases);
        try_grant(&node.engine, "after").await;
        println!(
            "  restart {what} {:>8.2} s, of it opening {:.2} s",
            begun.elapsed().as_secs_f64(),
            opened.as_secs_f64()
        );
        give_back(&node.engine, "after").await;
        let at = node.engine.peek(|node| node.applied()).await.unwrap();
        node.engine.take_snapshot();
        let written = place.folder.join(format!("snapshot-{:020}", at.index));
        while !written.exists() && !newer_snapshot(&place.folder, at.index) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        node.stop().await;
    }
}

fn newer_snapshot(folder: &Path, index: u64) -> bool {
    let names = std::fs::read_dir(folder).unwrap().filter_map(|entry| {
        entry.ok()?.file_name().to_str()?.strip_prefix("snapshot-")?.parse::<u64>().ok()
    });
    names.max().is_some_and(|newest| newest >= index)
}

async fn three_nodes(folder: &Path, leases: u64) {
    for kind in [Kind::Deadlines, Kind::Sessions] {
        println!("three nodes, {leases} {}", kind.words());
        let mut nodes = start_three(&folder.join(kind.words().replace(' ', "-"))).await;
        let begun = Instant::now();
        // The nodes have sessions of their own, and a million is the most there may be.
        fill(&nodes[0].engine, leases - 10, kind).await;
        println!("  filled in               {:>8.2} s", begun.elapsed().as_secs_f64());

        let leader = leader_of(&nodes).await;
        let heir = (leader + 1) % 3;
        let begun = Instant::now();
        nodes[leader].engine.transfer(nodes[heir].id);
        while !nodes[heir].engine.peek(|node| node.is_leader()).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let elected = begun.elapsed();
        try_grant(&nodes[heir].engine, "after").await;
        println!(
            "  leadership handed over  {:>8.2} s until it leads, {:.2} s until its first grant",
            elected.as_secs_f64(),
            begun.elapsed().as_secs_f64()
        );

        let dead = nodes.remove(heir);
        let begun = Instant::now();
        dead.engine.stop();
        let survivor = nodes[0].engine.clone();
        try_grant(&survivor, "after the second").await;
        println!(
            "  leader stopped dead     {:>8.2} s until the next grant",
            begun.elapsed().as_secs_f64()
        );
        for node in nodes {
            node.engine.stop();
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Deadlines,
    Sessions,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Self::Deadlines => "locks held by a deadline each",
            Self::Sessions => "sessions",
        }
    }
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

async fn start_three(folder: &Path) -> Vec<RunningNode> {
    std::fs::create_dir(folder).unwrap();
    let key = folder.join("cluster.key");
    ClusterKey::draw().write_new(&key).unwrap();
    let mut listeners = Vec::new();
    let mut members = Vec::new();
    for id in 1..=3 {
        let listener = listener().await;
        members.push((NodeId(id), listener.local_addr().unwrap().to_string()));
        listeners.push(listener);
    }
    let mut nodes = Vec::new();
    for ((id, address), listener) in members.clone().into_iter().zip(listeners) {
        let place = DataDir {
            folder: folder.join(id.to_string()),
            key: Some(key.clone()),
            first: First::Member { node: id, members: members.clone() },
            contact: Contact { peer: address, http: String::new() },
            tls: None,
        };
        nodes.push(RunningNode::start(&place, listener).await.unwrap());
    }
    nodes
}

async fn leader_of(nodes: &[RunningNode]) -> usize {
    loop {
        for (at, node) in nodes.iter().enumerate() {
            if node.engine.peek(|node| node.is_leader()).await.unwrap() {
                return at;
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn fill(engine: &Engine, count: u64, kind: Kind) {
    let mut askers = JoinSet::new();
    for asker in 0..ASKERS {
        let engine = engine.clone();
        askers.spawn(async move {
            for number in (asker..count).step_by(ASKERS as usize) {
                let command = match kind {
                    Kind::Deadlines => acquire(&format!("lock/{number:09}")),
                    Kind::Sessions => Command::OpenSession(OpenSession {
                        secret: SECRET,
                        ttl_ms: 10 * 60 * 1000,
                        label: None,
                        kind: SessionKind::Client,
                    }),
                };
                engine.submit(None, command).await.unwrap().unwrap();
            }
        });
    }
    askers.join_all().await;
}

fn acquire(name: &str) -> Command {
    Command::Acquire(Acquire {
        names: vec![LockName::parse(name).unwrap()],
        mode: Mode::Exclusive,
        session: None,
        lease: Lease::Deadline { ttl_ms: DAY_MS },
        wait: Wait::Try,
        label: Some(Label::parse("scale").unwrap()),
        note: None,
        secret: Some(SECRET),
        claims: Vec::new(),
        lock_delay_ms: 0,
        door: Door::Native,
    })
}

async fn try_grant(engine: &Engine, name: &str) {
    let answer = engine.submit(None, acquire(name)).await.unwrap().unwrap();
    assert!(matches!(answer, Answer::TicketStatus(TicketStatus::Held(_))));
}

async fn give_back(engine: &Engine, name: &str) {
    let release = Command::Release {
        target: holdfast_core::Target { name: LockName::parse(name).unwrap(), token: None },
        proof: holdfast_core::Proof::Secret(SECRET),
    };
    engine.submit(None, release).await.unwrap().unwrap();
}
