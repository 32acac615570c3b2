//! CPU and memory use of the servers' processes, from /proc.

use rustix::param::clock_ticks_per_second;
use std::fs;
use std::time::Duration;

/// The CPU time that these processes have used so far, user and system, without that of their
/// children.
pub(crate) fn cpu(pids: &[u32]) -> Result<Duration, String> {
    let mut ticks = 0;
    for pid in pids {
        let text = read(*pid, "stat")?;
        ticks += cpu_ticks(&text).ok_or_else(|| format!("/proc/{pid}/stat reads {text:?}"))?;
    }
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// The resident memory of these processes, in bytes.
pub(crate) fn resident(pids: &[u32]) -> Result<u64, String> {
    let mut bytes = 0;
    for pid in pids {
        let text = read(*pid, "status")?;
        let line = resident_bytes(&text);
        bytes += line.ok_or_else(|| format!("/proc/{pid}/status has no line VmRSS"))?;
    }
    Ok(bytes)
}

/// The current children of this process; empty if that can't be determined.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let listed =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let listed: Vec<String> = listed.collect();
    let words = listed.iter().flat_map(|children| children.split_ascii_whitespace());
    words.filter_map(|child| child.parse().ok()).collect()
}

fn read(pid: u32, what: &str) -> Result<String, String> {
    let path = format!("/proc/{pid}/{what}");
    fs::read_to_string(&path).map_err(|error| format!("a server has ended: {path}: {error}"))
}

/// Fields 14 and 15. The second field is the program's name in parentheses, and may contain
/// anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_with_brackets_and_spaces_in_the_name() {
        let stat = "42 (odd) name) S 1 42 42 0 -1 4194304 100 0 0 0 17 5 3 9 20 0 8 0 100 1 1";
        assert_eq!(cpu_ticks(stat), Some(22));
        assert_eq!(cpu_ticks("42 (cut) S 1"), None);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12 kB\n"), Some(12 * 1024));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }

    #[test]
    fn children_are_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let found = children(std::process::id());
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(found.contains(&child.id()), "{found:?}");
    }

    #[test]
    fn own_process_can_be_inspected() {
        let own = [std::process::id()];
        assert!(resident(&own).expect("own memory") > 100_000);
        assert!(cpu(&own).is_ok());
    }
}
