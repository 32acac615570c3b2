//! A Holdfast of one node inside this process. Its data is kept, and so are its ports: an instance that
//! shares it finds it again after a restart.

use crate::settings::LockType;
use holdfast_server::{
    Config, DOORS, DoorAddresses, First, PEER_PORT_ABOVE, Server, ports_are_free,
};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// How many ports to try: another program may take one before the server does.
const TRIES: u32 = 20;

/// Where the port of the last start is noted.
const PORT_FILE: &str = "port";

/// The server. It ends with [`Embedded::stop`], or with the process.
pub(crate) struct Embedded {
    port: u16,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), String>>,
}

impl Embedded {
    pub(crate) async fn start(folder: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("can't make {}: {error}", folder.display()))?;
        let noted = folder.join(PORT_FILE);
        let before = std::fs::read_to_string(&noted).ok().and_then(|port| port.trim().parse().ok());
        let mut next = before.filter(|port| is_free(*port));
        for _ in 0..TRIES {
            let port = match next.take() {
                Some(port) => port,
                None => free_port().map_err(|error| error.to_string())?,
            };
            match Server::start(&config(folder, port)).await {
                Ok(server) => {
                    std::fs::write(&noted, port.to_string())
                        .map_err(|error| format!("can't write {}: {error}", noted.display()))?;
                    let (stop, stopped) = oneshot::channel::<()>();
                    let running = tokio::spawn(server.run(async {
                        let _ = stopped.await;
                    }));
                    return Ok(Self { port, stop, running });
                }
                // Somebody else was faster; anything else stays wrong.
                Err(_) if !is_free(port) => {}
                Err(error) => return Err(error),
            }
        }
        Err("no free ports".to_owned())
    }

    /// The URL of the door that a lock type uses; `None` if Holdfast has no such door.
    pub(crate) fn url(&self, lock_type: LockType) -> Option<String> {
        let door = DOORS.iter().find(|door| Some(door.name) == lock_type.door())?;
        let scheme = lock_type.schemes().first()?;
        Some(format!("{scheme}://127.0.0.1:{}", self.port + door.port_above))
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.running.await;
    }
}

/// Whether Holdfast has a door for this lock type.
pub(crate) fn has_door(lock_type: LockType) -> bool {
    DOORS.iter().any(|door| Some(door.name) == lock_type.door())
}

fn config(folder: &Path, port: u16) -> Config {
    Config {
        data_dir: folder.join("node"),
        listen: HERE,
        advertise: None,
        allow_hosts: Vec::new(),
        port,
        doors: DoorAddresses::default(),
        key: None,
        first: First::Alone,
        password: None,
        tls: None,
    }
}

fn free_port() -> std::io::Result<u16> {
    loop {
        let port = TcpListener::bind((HERE, 0))?.local_addr()?.port();
        if is_free(port) {
            return Ok(port);
        }
    }
}

/// Whether this port and those of the other doors and of peers are free.
fn is_free(port: u16) -> bool {
    let above = DOORS.iter().map(|door| door.port_above).chain([PEER_PORT_ABOVE]);
    let ports: Option<Vec<u16>> = above.map(|above| port.checked_add(above)).collect();
    ports.is_some_and(|ports| ports_are_free(HERE, ports).is_ok())
}
