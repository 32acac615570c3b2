//! Plain writes that reached some of three replicas: what readers see afterwards, on three real
//! nodes. The first table of docs/failed-writes.md contains what this finds.

use crate::servers::cassandra::Cassandra;
use crate::servers::cassandra::cql::{Consistency, Cql, WRITE_TIMEOUT};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::Duration;

const LEVELS: [(&str, Consistency); 4] = [
    ("ONE", Consistency::One),
    ("QUORUM", Consistency::Quorum),
    ("ALL", Consistency::All),
    ("SERIAL", Consistency::Serial),
];

/// How many attempts to reach a state: a node that was stopped may apply what it finds in its
/// socket when it is continued.
const ATTEMPTS: usize = 10;

/// The time between two writes, so that the later one has the higher timestamp on any node.
const APART: Duration = Duration::from_millis(50);

/// Three nodes with a table for plain writes.
pub(super) struct Replicas {
    nodes: Vec<Cassandra>,
    /// Unused names, by the place of their first replica in the ring. With one name of each, reads
    /// of two replicas through all three nodes cover each pair.
    names: [Vec<String>; 3],
}

/// A write or delete, and which nodes it reached.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The request is lost.
    WriteReachesNone,
    /// All but these nodes are stopped first. The client is told that it timed out.
    WriteReaches(&'static [usize]),
    /// The reply is lost.
    WriteReachesAll,
    DeleteReachesNone,
    DeleteReaches(&'static [usize]),
    DeleteReachesAll,
}

use Step::*;

/// What happened, step by step, and what each replica has afterwards: `*` for the lock.
const STATES: [(&str, &[Step], [char; 3]); 10] = [
    ("write reached 0 of 3 (the request was lost)", &[WriteReachesNone], ['-', '-', '-']),
    ("write reached 1 of 3", &[WriteReaches(&[0])], ['*', '-', '-']),
    ("write reached 2 of 3", &[WriteReaches(&[0, 1])], ['*', '*', '-']),
    ("write reached 3 of 3 (the answer was lost)", &[WriteReachesAll], ['*', '*', '*']),
    (
        "delete reached 0 of 3 (the request was lost)",
        &[WriteReachesAll, DeleteReachesNone],
        ['*', '*', '*'],
    ),
    ("delete reached 1 of 3", &[WriteReachesAll, DeleteReaches(&[2])], ['*', '*', '-']),
    ("delete reached 2 of 3", &[WriteReachesAll, DeleteReaches(&[1, 2])], ['*', '-', '-']),
    (
        "delete reached 3 of 3 (the answer was lost)",
        &[WriteReachesAll, DeleteReachesAll],
        ['-', '-', '-'],
    ),
    (
        "write reached only A, the handler's delete only B",
        &[WriteReaches(&[0]), DeleteReaches(&[1])],
        ['*', '-', '-'],
    ),
    (
        "write was lost, another client took the lock, the handler's delete reached 3 of 3",
        &[WriteReachesNone, WriteReachesAll, DeleteReachesAll],
        ['-', '-', '-'],
    ),
];

impl Replicas {
    pub(super) fn start() -> Self {
        let nodes = Cassandra::trio();
        let mut replicas = Self { nodes, names: Default::default() };
        (0..3).for_each(|node| replicas.wait_for_peers(node));
        let mut cql = replicas.connect(0);
        let mut run = |statement: &str| {
            // One that missed a change of the schema asks for it only after a minute.
            for _ in 0..180 {
                match cql.run(statement, Consistency::All) {
                    Ok(rows) => return rows,
                    Err(_) => std::thread::sleep(Duration::from_secs(1)),
                }
            }
            panic!("{statement}: {:?}", cql.run(statement, Consistency::All));
        };
        run("CREATE KEYSPACE IF NOT EXISTS story WITH replication = \
             {'class': 'SimpleStrategy', 'replication_factor': 3}");
        for table in ["locks", "names"] {
            run(&format!(
                "CREATE TABLE IF NOT EXISTS story.{table} (lock_name text PRIMARY KEY, client_id text) \
                 WITH read_repair = 'NONE' AND speculative_retry = 'NONE'"
            ));
        }
        for number in 0..240 {
            run(&format!("INSERT INTO story.names (lock_name) VALUES ('seat-{number}')"));
        }
        for row in run("SELECT lock_name, token(lock_name) FROM story.names") {
            let [Some(name), Some(token)] = &row[..] else { panic!("{row:?}") };
            replicas.names[Cassandra::first_of_trio(token.parse().unwrap())].push(name.clone());
        }
        replicas
    }

    /// Waits until a node knows the other two: it would miss changes of the schema.
    fn wait_for_peers(&self, node: usize) {
        let mut cql = self.connect(node);
        let others = "SELECT release_version FROM system.peers_v2";
        for _ in 0..180 {
            if cql.run(others, Consistency::One).is_ok_and(|rows| rows.len() == 2) {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        panic!("node {node} does not find the others");
    }

    pub(super) fn nodes(&self) -> &[Cassandra] {
        &self.nodes
    }

    fn connect(&self, node: usize) -> Cql {
        let Cassandra { address, port, .. } = &self.nodes[node];
        Cql::connect(&format!("{address}:{port}"))
    }

    /// Three unused names, whose first replicas are A, B and C.
    fn new_names(&mut self) -> Vec<String> {
        self.names.iter_mut().map(|names| names.pop().expect("there are names left")).collect()
    }

    fn signal(&self, running: &[usize], signal: Signal) {
        let others = self.nodes.iter().enumerate().filter(|(node, _)| !running.contains(node));
        others.for_each(|(_, node)| node.signal(signal));
    }

    fn take(&self, step: Step, names: &[String]) {
        let write = |name| {
            format!("INSERT INTO story.locks (lock_name, client_id) VALUES ('{name}', 'ana')")
        };
        let delete = |name| format!("DELETE FROM story.locks WHERE lock_name = '{name}'");
        match step {
            WriteReachesNone | DeleteReachesNone => {}
            WriteReaches(reached) => self.run_on(reached, names.iter().map(write)),
            DeleteReaches(reached) => self.run_on(reached, names.iter().map(delete)),
            WriteReachesAll => names.iter().for_each(|name| self.run_unheard(&write(name))),
            DeleteReachesAll => names.iter().for_each(|name| self.run_unheard(&delete(name))),
        }
        std::thread::sleep(APART);
    }

    /// Runs statements while only these nodes are running. The client wants all replicas, and times
    /// out.
    fn run_on(&self, running: &[usize], statements: impl Iterator<Item = String>) {
        let mut started: Vec<_> =
            statements.map(|statement| (self.connect(running[0]), statement)).collect();
        self.signal(running, Signal::STOP);
        for (cql, statement) in &mut started {
            cql.start(statement, Consistency::All);
        }
        for (mut cql, statement) in started {
            let error = cql.answer().expect_err(&statement);
            assert_eq!(error.code, WRITE_TIMEOUT, "{statement}: {error:?}");
        }
        // By now, nodes that are continued drop what was sent to them.
        std::thread::sleep(Duration::from_secs(1));
        self.signal(running, Signal::CONT);
    }

    /// Runs a statement without reading the reply.
    fn run_unheard(&self, statement: &str) {
        self.connect(0).start(statement, Consistency::Quorum);
    }

    /// Whether a reader through this node sees the lock.
    fn sees(&self, node: usize, name: &str, level: Consistency) -> bool {
        let statement = format!("SELECT client_id FROM story.locks WHERE lock_name = '{name}'");
        let mut last = None;
        for _ in 0..20 {
            match self.connect(node).run(&statement, level) {
                Ok(rows) => return !rows.is_empty(),
                // Nodes that were stopped a moment ago.
                Err(error) => last = Some(error),
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        panic!("{statement}: {last:?}");
    }

    /// Whether each replica has what it should, asked one by one.
    fn is_state(&self, names: &[String], expected: [char; 3]) -> bool {
        let has = |node, name| if self.sees(node, name, Consistency::One) { '*' } else { '-' };
        let is_so =
            || (0..3).all(|node| names.iter().all(|name| has(node, name) == expected[node]));
        // A statement whose reply nobody reads takes a moment.
        (0..20).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            is_so()
        })
    }

    /// Creates names in this state.
    fn make(&mut self, steps: &[Step], expected: [char; 3]) -> Vec<String> {
        for _ in 0..ATTEMPTS {
            let names = self.new_names();
            let mut before = ['-'; 3];
            let made = steps.iter().all(|step| {
                self.take(*step, &names);
                before = after(before, *step);
                self.is_state(&names, before)
            });
            assert!(!made || before == expected, "{steps:?} leads to {before:?}");
            if made {
                return names;
            }
        }
        panic!("{steps:?} never led to {expected:?}");
    }

    /// What readers see through any node, at a consistency level.
    fn cell(&self, names: &[String], level: Consistency) -> &'static str {
        let reads = (0..3).flat_map(|node| names.iter().map(move |name| (node, name)));
        let seen: BTreeSet<_> = reads.map(|(node, name)| self.sees(node, name, level)).collect();
        match (seen.contains(&true), seen.contains(&false)) {
            (true, true) => "either",
            (true, false) => "locked",
            _ => "free",
        }
    }

    /// The rows of the table.
    pub(super) fn table(&mut self) -> String {
        let mut table = String::from("| what happened | A | B | C |");
        LEVELS.iter().for_each(|(level, _)| table.push_str(&format!(" `{level}` |")));
        table.push_str("\n| --- |");
        table.push_str(&" --- |".repeat(3 + LEVELS.len()));
        for (what, steps, expected) in STATES {
            let names = self.make(steps, expected);
            table.push_str(&format!("\n| {what} |"));
            for content in expected {
                table.push_str(if content == '*' { " lock |" } else { "  |" });
            }
            for (_, level) in LEVELS {
                table.push_str(&format!(" {} |", self.cell(&names, level)));
            }
        }
        table.push('\n');
        table
    }

    /// A plain quorum write that reached only A, and then C stops: A and B are a quorum, and
    /// neither they nor anyone who reads from them can tell this lock from one that is held. Its
    /// writer was told that it failed. Nobody holds it, and nobody can take it.
    pub(super) fn show_ghost(&mut self) {
        let names = self.make(&[WriteReaches(&[0])], ['*', '-', '-']);
        // For this name A and B are the first two replicas, so both are read.
        let name = &names[0];
        let mut takers: Vec<_> = (0..2).map(|node| self.connect(node)).collect();
        self.signal(&[0, 1], Signal::STOP);
        let read = format!("SELECT client_id FROM story.locks WHERE lock_name = '{name}'");
        let take = format!(
            "INSERT INTO story.locks (lock_name, client_id) VALUES ('{name}', 'bo') IF NOT EXISTS"
        );
        for taker in &mut takers {
            let seen = taker.run(&read, Consistency::Quorum).unwrap();
            assert_eq!(seen, [[Some("ana".to_owned())]]);
            let taken = taker.run(&take, Consistency::Quorum).unwrap();
            assert_eq!(taken[0][0].as_deref(), Some("false"), "{taken:?}");
        }
        self.signal(&[0, 1], Signal::CONT);
    }
}

/// What the replicas have after a step.
fn after(before: [char; 3], step: Step) -> [char; 3] {
    let reached = |nodes: &[usize], content: char| {
        std::array::from_fn(|node| if nodes.contains(&node) { content } else { before[node] })
    };
    match step {
        WriteReachesNone | DeleteReachesNone => before,
        WriteReaches(nodes) => reached(nodes, '*'),
        DeleteReaches(nodes) => reached(nodes, '-'),
        WriteReachesAll => ['*'; 3],
        DeleteReachesAll => ['-'; 3],
    }
}
