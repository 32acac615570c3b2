//! A whole server: listeners, the node behind them, an orderly end.

use crate::data::{First, PID_FILE, Place};
use crate::doors::{
    ConnectionLimit, Context, DOORS, Door, DoorAddresses, Opening, connections_max,
};
use crate::engine::End;
use crate::node::Running;
use crate::password::Password;
use crate::peers::Contact;
use holdfast_node::NodeId;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What a server needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder of its data.
    pub data_dir: PathBuf,
    /// The address that it listens on.
    pub listen: IpAddr,
    /// Where others reach it, if not at that address.
    pub advertise: Option<String>,
    /// Further names under which HTTP clients may address it.
    pub allow_hosts: Vec<String>,
    /// The port for HTTP; the others follow from it.
    pub port: u16,
    /// Where the other doors listen.
    pub doors: DoorAddresses,
    /// The file of the cluster's key; none for the one in the data folder.
    pub key: Option<PathBuf>,
    /// What an empty folder is to become.
    pub first: First,
    /// Asked for in every door; none for nobody.
    pub password: Option<Password>,
}

/// Peers are reached so many ports above HTTP.
pub const PEER_PORT_ABOVE: u16 = 10;

impl Config {
    /// The port for peers.
    pub fn peer_port(&self) -> Result<u16, String> {
        let port = self.port.checked_add(PEER_PORT_ABOVE);
        port.ok_or_else(|| format!("--port {} leaves no room for the other ports", self.port))
    }

    /// Every door that is open, and where.
    pub fn open_doors(&self) -> Result<Vec<(&'static Door, SocketAddr)>, String> {
        // The highest port of all is asked for first: if there is room for it, there is for all.
        self.peer_port()?;
        let address =
            |door: &'static Door| Some((door, self.doors.resolve(door, self.listen, self.port)?));
        Ok(DOORS.iter().filter_map(address).collect())
    }

    /// Where others reach it.
    pub fn contact(&self) -> Result<Contact, String> {
        let host = match (&self.advertise, self.listen) {
            (Some(host), _) => host.clone(),
            (None, IpAddr::V4(ip)) => ip.to_string(),
            (None, IpAddr::V6(ip)) => format!("[{ip}]"),
        };
        let peer = format!("{host}:{}", self.peer_port()?);
        Ok(Contact { peer, http: format!("http://{host}:{}", self.port) })
    }

    /// Where its data is and how it begins.
    pub fn place(&self) -> Result<Place, String> {
        Ok(Place {
            folder: self.data_dir.clone(),
            key: self.key.clone(),
            first: self.first.clone(),
            contact: self.contact()?,
        })
    }
}

/// A future whose code is compiled here, and not again in every program that awaits it: the whole
/// server is behind it.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A server that runs.
pub struct Server {
    running: Running,
    doors: JoinSet<(&'static Door, io::Result<()>)>,
    pid_file: PathBuf,
}

impl Server {
    /// Starts everything; when it returns, the ports are open.
    pub fn start(config: &Config) -> Boxed<'_, Result<Self, String>> {
        Box::pin(Self::start_all(config))
    }

    async fn start_all(config: &Config) -> Result<Self, String> {
        let mut listeners = Vec::new();
        for (door, address) in config.open_doors()? {
            listeners.push((door, bind_door(door, address).await?));
        }
        let peers = bind(config.listen, config.peer_port()?).await?;
        let running = Running::start(&config.place()?, peers).await?;
        let pid_file = config.data_dir.join(PID_FILE);
        fs::write(&pid_file, format!("{}\n", std::process::id()))
            .map_err(|error| format!("can't write {}: {error}", pid_file.display()))?;
        let context = Context {
            id: running.id,
            engine: running.engine.clone(),
            membership: running.membership.clone(),
            metrics: running.metrics.clone(),
        };
        let connections_max = connections_max();
        let mut doors = JoinSet::new();
        for (door, listener) in listeners {
            let metrics = running.metrics.door(door.name);
            let serving = (door.serve)(Opening {
                listener,
                limit: ConnectionLimit { connections_max, metrics },
                context: context.clone(),
                password: config.password.clone(),
                hosts: config.advertise.iter().chain(&config.allow_hosts).cloned().collect(),
            });
            doors.spawn(async move { (door, serving.await) });
        }
        Ok(Self { running, doors, pid_file })
    }

    /// Which member it is.
    pub fn id(&self) -> NodeId {
        self.running.id
    }

    /// Runs until it is told to stop, or must.
    pub fn run<'a>(
        self,
        stop: impl Future<Output = ()> + Send + 'a,
    ) -> Boxed<'a, Result<(), String>> {
        let stop: Boxed<'a, ()> = Box::pin(stop);
        Box::pin(self.run_until(stop))
    }

    async fn run_until(mut self, stop: Boxed<'_, ()>) -> Result<(), String> {
        let end = tokio::select! {
            end = self.running.ended() => end,
            Some(ended) = self.doors.join_next() => {
                self.running.stop().await;
                End::Fault(match ended {
                    Ok((door, served)) => format!("the door for {} has ended: {served:?}", door.clients),
                    Err(error) => format!("a door has ended: {error}"),
                })
            }
            () = stop => {
                tracing::info!("stopping: leadership goes to another node first");
                self.running.stop().await
            }
        };
        self.doors.abort_all();
        // It is for people; one that stays tells them of a process that is gone.
        let _ = fs::remove_file(&self.pid_file);
        match end {
            End::Asked => Ok(()),
            End::Fault(why) | End::Lost { why, .. } => Err(why),
        }
    }
}

async fn bind(ip: IpAddr, port: u16) -> Result<TcpListener, String> {
    TcpListener::bind((ip, port)).await.map_err(|error| not_bound(ip, port, &error))
}

async fn bind_door(door: &Door, address: SocketAddr) -> Result<TcpListener, String> {
    let bound = bind(address.ip(), address.port()).await;
    let Some(_) = door.setting else { return bound };
    let name = door.name;
    bound.map_err(|error| format!("{error}; or say --{name} IP:PORT, or --{name} off"))
}

/// Whether all these ports are free now.
pub fn ports_are_free(ip: IpAddr, ports: impl IntoIterator<Item = u16>) -> Result<(), String> {
    ports.into_iter().try_for_each(|port| {
        let bound = std::net::TcpListener::bind((ip, port));
        bound.map(drop).map_err(|error| not_bound(ip, port, &error))
    })
}

fn not_bound(ip: IpAddr, port: u16, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("port {port} is busy: stop what uses it, or move all ports with --port BASE")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("{ip} is no address of this machine: say another one with --listen IP")
        }
        _ => format!("can't listen on {ip} port {port}: {error}"),
    }
}
