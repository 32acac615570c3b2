//! The traffic between clients and servers, as counted by the kernel.
//!
//! `ss` shows the counters of every TCP connection. Only the servers' ends are counted, selected by
//! the client ports: so each connection counts once, and traffic between servers does not count.

use std::process::Command;

/// Traffic on a server's current connections with clients, since each of them was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) bytes_to_clients: u64,
    pub(crate) bytes_to_servers: u64,
    /// Segments with data sent to clients. Each one wakes a waiting client.
    pub(crate) wakeups: u64,
}

impl Traffic {
    /// The traffic since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            bytes_to_clients: self.bytes_to_clients.saturating_sub(earlier.bytes_to_clients),
            bytes_to_servers: self.bytes_to_servers.saturating_sub(earlier.bytes_to_servers),
            wakeups: self.wakeups.saturating_sub(earlier.wakeups),
        }
    }
}

/// The counters of all current connections of clients to these ports.
pub(crate) fn traffic(ports: &[u16]) -> Result<Traffic, String> {
    let ports: Vec<String> = ports.iter().map(|port| format!("sport = :{port}")).collect();
    let mut command = Command::new("ss");
    command.args(["--tcp", "--info", "--numeric", "--no-header", "state", "established"]);
    let shown = command.arg(ports.join(" or ")).output().map_err(|error| {
        format!("ss does not run ({error}): install it with `sudo apt-get install -y iproute2`")
    })?;
    if !shown.status.success() {
        return Err(format!("ss: {}", String::from_utf8_lossy(&shown.stderr).trim()));
    }
    Ok(count(&String::from_utf8_lossy(&shown.stdout)))
}

fn count(shown: &str) -> Traffic {
    let mut traffic = Traffic::default();
    for (name, value) in shown.split_ascii_whitespace().filter_map(|word| word.split_once(':')) {
        let counter = match name {
            "bytes_sent" => &mut traffic.bytes_to_clients,
            "bytes_received" => &mut traffic.bytes_to_servers,
            "data_segs_out" => &mut traffic.wakeups,
            _ => continue,
        };
        *counter += value.parse().unwrap_or(0);
    }
    traffic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_connections_are_summed() {
        let shown = "0 0 127.0.0.1:7400 127.0.0.1:50000\n\
             \t cubic rto:204 bytes_sent:100 bytes_acked:100 bytes_received:40 data_segs_out:3\n\
             0 0 127.0.0.1:7400 127.0.0.1:50001\n\
             \t cubic rto:204 bytes_sent:11 bytes_received:2 segs_out:9 data_segs_out:1\n";
        let expected = Traffic { bytes_to_clients: 111, bytes_to_servers: 42, wakeups: 4 };
        assert_eq!(count(shown), expected);
        let later = Traffic { bytes_to_clients: 211, bytes_to_servers: 50, wakeups: 4 };
        let between = Traffic { bytes_to_clients: 100, bytes_to_servers: 8, wakeups: 0 };
        assert_eq!(later.since(expected), between);
    }
}
