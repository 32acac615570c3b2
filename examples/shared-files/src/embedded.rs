//! A Holdfast of one node inside this process, on a free port, in a folder that goes away.

use holdfast_server::{Config, DoorAddresses, First, PEER_PORT_ABOVE, Server};
use std::net::{IpAddr, Ipv4Addr, TcpListener};

/// How many ports to try: another program may take one before the server does.
const TRIES: u32 = 20;

/// The server; it ends with the process.
pub(crate) struct Holdfast {
    pub(crate) url: String,
    _folder: tempfile::TempDir,
}

impl Holdfast {
    pub(crate) async fn start() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut why = String::new();
        for _ in 0..TRIES {
            let port = free_port().map_err(|error| error.to_string())?;
            let config = Config {
                data_dir: folder.path().join("node"),
                listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
                advertise: None,
                allow_hosts: Vec::new(),
                port,
                doors: DoorAddresses::all_off(),
                key: None,
                first: First::Alone,
                password: None,
                tls: None,
            };
            match Server::start(&config).await {
                Ok(server) => {
                    tokio::spawn(server.run(std::future::pending()));
                    return Ok(Self { url: format!("http://127.0.0.1:{port}"), _folder: folder });
                }
                Err(error) => why = error,
            }
        }
        Err(format!("Holdfast does not start: {why}"))
    }
}

/// A port whose neighbour for other nodes is free as well.
fn free_port() -> std::io::Result<u16> {
    loop {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let peers = port.checked_add(PEER_PORT_ABOVE);
        if peers.is_some_and(|peers| TcpListener::bind(("127.0.0.1", peers)).is_ok()) {
            return Ok(port);
        }
    }
}
