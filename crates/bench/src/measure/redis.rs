//! The Redis door next to Redis, with Redis's own tool and with the usual recipe.
//!
//! `redis-benchmark` talks to one node, the leader. It sends `SET NX PX` for random names out of as
//! many as it sends requests, so about two in three succeed; then the script that deletes the key
//! if it still has the client's value. The pairs are spread over all nodes.

use super::{Plan, SETTLE, fresh, pairs};
use crate::clients::redis::{Connection, DELETE_OWN, Redis};
use crate::clients::{Client, SESSION_TTL};
use crate::peers::{Cluster, Setup};
use crate::procfs;
use crate::report::{Better, Figure, Row};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// How many connections redis-benchmark opens.
const CONNECTIONS: [u32; 2] = [50, 200];
/// How many requests it sends before it waits for the first reply.
const PIPELINES: [u32; 2] = [1, 16];
/// Connections that take and release locks.
const PAIRS: usize = 64;
/// Requests sent to estimate the speed.
const ESTIMATED_BY: u64 = 20_000;
/// The most names in one run, to bound the memory they take.
const REQUESTS_MAX: u64 = 2_000_000;

/// How many times the measured time passes, at most: half the estimated speed is still in time.
pub(super) const WINDOWS: u32 = 1 + 2 * 2 * (CONNECTIONS.len() * PIPELINES.len()) as u32;

pub(super) async fn run(setup: Setup, plan: &Plan) -> Result<Vec<Row>, String> {
    let cluster = plan.start(setup).await?;
    let ports = redis_ports(&cluster);
    let mut rows = vec![locks(setup, &cluster, &ports, plan).await?];
    let leader = if setup.is_holdfast() { cluster.leader().await? } else { 0 };
    let port = ports.get(leader).copied().ok_or("no node leads")?;
    let script = Connection::open(port).await?.call(&["SCRIPT", "LOAD", DELETE_OWN]).await?;
    let script = script.ok_or("redis: SCRIPT LOAD: no answer")?;
    let ttl = SESSION_TTL.as_millis().to_string();
    for connections in CONNECTIONS {
        for pipeline in PIPELINES {
            let prefix = format!("bench-{}:__rand_int__", fresh());
            let set = ["SET", &prefix, "mine", "NX", "PX", &ttl];
            let delete = ["EVALSHA", &script, "1", &prefix, "mine"];
            let load = Load { port, connections, pipeline };
            let estimated = load.bench(&set, ESTIMATED_BY).await?;
            let wanted = (estimated.per_second * plan.seconds.as_secs_f64()) as u64;
            let requests = wanted.clamp(ESTIMATED_BY, REQUESTS_MAX);
            for (what, words) in
                [("SET NX PX", set.as_slice()), ("compare and delete", delete.as_slice())]
            {
                let pids = cluster.pids();
                let before = procfs::cpu(&pids)?;
                let told = load.bench(words, requests).await?;
                let cpu = procfs::cpu(&pids)?.saturating_sub(before);
                let with = format!("{what}, {connections} connections, pipeline {pipeline}");
                rows.push(Row::new("redis", setup.name(), with, told.figures(cpu, requests)));
            }
        }
    }
    Ok(rows)
}

/// The ports that speak the Redis protocol.
fn redis_ports(cluster: &Cluster) -> Vec<u16> {
    let above = u16::from(cluster.target.setup.is_holdfast());
    cluster.target.ports.iter().map(|port| port + above).collect()
}

/// Acquire and release with the usual recipe, each connection on its own lock.
async fn locks(setup: Setup, cluster: &Cluster, ports: &[u16], plan: &Plan) -> Result<Row, String> {
    let mut clients: Vec<Box<dyn Client>> = Vec::new();
    for (number, port) in (0..PAIRS).zip(ports.iter().copied().cycle()) {
        clients.push(Box::new(Redis::connect(&[port], number).await?));
    }
    let recorded = pairs::measure(clients, cluster, plan).await?;
    let with = format!("lock pairs, {PAIRS} connections");
    Ok(Row::new(
        "redis",
        setup.name(),
        with,
        vec![
            Figure::new("per second", Better::Higher, recorded.per_second()),
            Figure::new("p50 ms", Better::Lower, recorded.percentile(0.5)?),
            Figure::new("p99 ms", Better::Lower, recorded.percentile(0.99)?),
            Figure::new("server CPU us each", Better::Lower, recorded.cpu_us()),
        ],
    ))
}

/// Parameters for redis-benchmark.
struct Load {
    port: u16,
    connections: u32,
    pipeline: u32,
}

/// The results of redis-benchmark.
#[derive(Debug, PartialEq)]
struct BenchmarkResult {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Load {
    async fn bench(&self, words: &[&str], requests: u64) -> Result<BenchmarkResult, String> {
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "--csv"]);
        command.args(["-c", &self.connections.to_string(), "-P", &self.pipeline.to_string()]);
        command.args(["-n", &requests.to_string(), "-r", &requests.to_string()]);
        let run = command.args(words).stdin(Stdio::null()).kill_on_drop(true).output().await;
        let run = run.map_err(|error| {
            format!(
                "redis-benchmark can't be started: {error}: install it with `sudo apt-get install \
                 -y redis-tools`"
            )
        })?;
        let printed = String::from_utf8_lossy(&run.stdout);
        let odd = || {
            let errors = String::from_utf8_lossy(&run.stderr);
            format!("can't parse the output of redis-benchmark: {printed}{errors}")
        };
        read(&printed).filter(|_| run.status.success()).ok_or_else(odd)
    }
}

impl BenchmarkResult {
    fn figures(&self, cpu: Duration, requests: u64) -> Vec<Figure> {
        let each = cpu.as_secs_f64() * 1e6 / requests.max(1) as f64;
        vec![
            Figure::new("per second", Better::Higher, self.per_second),
            Figure::new("p50 ms", Better::Lower, self.p50_ms),
            Figure::new("p99 ms", Better::Lower, self.p99_ms),
            Figure::new("server CPU us each", Better::Lower, each),
        ]
    }
}

/// Reads the last line, by the column names in the first.
fn read(csv: &str) -> Option<BenchmarkResult> {
    let mut lines = csv.lines().filter(|line| line.starts_with('"'));
    let (names, values) = (fields(lines.next()?), fields(lines.next_back()?));
    let value = |name: &str| {
        let at = names.iter().position(|known| *known == name)?;
        values.get(at)?.parse().ok()
    };
    Some(BenchmarkResult {
        per_second: value("rps")?,
        p50_ms: value("p50_latency_ms")?,
        p99_ms: value("p99_latency_ms")?,
    })
}

/// No field contains a comma.
fn fields(line: &str) -> Vec<&str> {
    line.split(',').map(|field| field.trim_matches('"')).collect()
}

/// How long all of it may take.
pub(super) fn limit(plan: &Plan) -> Duration {
    (SETTLE + plan.seconds + Duration::from_secs(10)) * WINDOWS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmark_output_is_parsed() {
        let printed = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
            \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET a b\",\"52631.58\",\"0.488\",\"0.112\",\"0.471\",\"0.759\",\"1.023\",\"2.007\"\n";
        let expected = BenchmarkResult { per_second: 52631.58, p50_ms: 0.471, p99_ms: 1.023 };
        assert_eq!(read(printed), Some(expected));
        assert_eq!(read("Could not connect\n"), None);
    }
}
