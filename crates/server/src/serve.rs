//! A whole server: its listeners, the node behind them, and orderly shutdown.

use crate::authentication::Authenticator;
use crate::data::{DataDir, First, PID_FILE};
use crate::doors::{
    ConnectionLimit, Context, DOORS, Door, DoorAddresses, Listener, Opening, connections_max,
};
use crate::engine::StopReason;
use crate::node::RunningNode;
use crate::password::Password;
use crate::peers::Contact;
use crate::tls::{Tls, TlsFiles};
use holdfast_node::NodeId;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The data folder.
    pub data_dir: PathBuf,
    /// The IP address to listen on, for clients and peers.
    pub listen: IpAddr,
    /// The host that other machines reach this node at, if not `listen`.
    pub advertise: Option<String>,
    /// Additional host names that HTTP clients may use for this server.
    pub allow_hosts: Vec<String>,
    /// The HTTP port; the other ports are derived from it.
    pub port: u16,
    /// Where the doors other than HTTP listen.
    pub doors: DoorAddresses,
    /// The cluster key file; `None` means the one in the data folder.
    pub key: Option<PathBuf>,
    /// What to do if the data folder is empty.
    pub first: First,
    /// The password that every door requires; `None` means no authentication.
    pub password: Option<Password>,
    /// The certificates of this node; `None` means that nothing is encrypted.
    pub tls: Option<TlsFiles>,
}

/// The peer port is this many above the HTTP port.
pub const PEER_PORT_ABOVE: u16 = 10;

impl Config {
    /// The port that peers connect to.
    pub fn peer_port(&self) -> Result<u16, String> {
        let port = self.port.checked_add(PEER_PORT_ABOVE);
        port.ok_or_else(|| format!("--port {} leaves no room for the other ports", self.port))
    }

    /// The enabled doors and the addresses they listen on.
    pub fn open_doors(&self) -> Result<Vec<(&'static Door, SocketAddr)>, String> {
        // The peer port is the highest: if it fits, so do all the others.
        self.peer_port()?;
        let address =
            |door: &'static Door| Some((door, self.doors.resolve(door, self.listen, self.port)?));
        Ok(DOORS.iter().filter_map(address).collect())
    }

    /// The addresses at which peers and clients reach this node.
    pub fn contact(&self) -> Result<Contact, String> {
        let host = match (&self.advertise, self.listen) {
            (Some(host), _) => host.clone(),
            (None, IpAddr::V4(ip)) => ip.to_string(),
            (None, IpAddr::V6(ip)) => format!("[{ip}]"),
        };
        let peer = format!("{host}:{}", self.peer_port()?);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(Contact { peer, http: format!("{scheme}://{host}:{}", self.port) })
    }

    /// Where the node's data is, and how to start if there is none.
    pub fn place(&self) -> Result<DataDir, String> {
        Ok(DataDir {
            folder: self.data_dir.clone(),
            key: self.key.clone(),
            first: self.first.clone(),
            contact: self.contact()?,
            tls: self.tls.clone().map(Tls::load).transpose()?,
        })
    }
}

/// A boxed future: the whole server is compiled in this crate, not again in every program that
/// awaits it.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A running server.
pub struct Server {
    running: RunningNode,
    doors: JoinSet<(&'static Door, io::Result<()>)>,
    pid_file: PathBuf,
}

impl Server {
    /// Starts everything. All ports are listening when this returns.
    pub fn start(config: &Config) -> Boxed<'_, Result<Self, String>> {
        Box::pin(Self::start_all(config))
    }

    async fn start_all(config: &Config) -> Result<Self, String> {
        let mut listeners = Vec::new();
        for (door, address) in config.open_doors()? {
            listeners.push((door, bind_door(door, address).await?));
        }
        let peers = bind(config.listen, config.peer_port()?).await?;
        let place = config.place()?;
        let running = RunningNode::start(&place, peers).await?;
        let pid_file = config.data_dir.join(PID_FILE);
        fs::write(&pid_file, format!("{}\n", std::process::id()))
            .map_err(|error| format!("can't write {}: {error}", pid_file.display()))?;
        let authenticator =
            Arc::new(Authenticator::new(config.password.clone(), running.engine.clone()));
        let context = Context {
            id: running.id,
            authenticator,
            engine: running.engine.clone(),
            membership: running.membership.clone(),
            metrics: running.metrics.clone(),
        };
        let connections_max = connections_max();
        let mut doors = JoinSet::new();
        for (door, listener) in listeners {
            let metrics = running.metrics.door(door.name);
            let listener = match &place.tls {
                None => listener.into(),
                Some(tls) => {
                    Listener::with_tls(listener, tls.clone(), door.accepting, door.needs_tls)
                }
            };
            let serving = (door.serve)(Opening {
                listener,
                limit: ConnectionLimit { connections_max, metrics },
                context: context.clone(),
                hosts: config.advertise.iter().chain(&config.allow_hosts).cloned().collect(),
            });
            doors.spawn(async move { (door, serving.await) });
        }
        Ok(Self { running, doors, pid_file })
    }

    /// This node's member id.
    pub fn id(&self) -> NodeId {
        self.running.id
    }

    /// Runs until `stop` resolves or the node has to stop by itself.
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
                StopReason::Fault(match ended {
                    Ok((door, served)) => format!("the door for {} has ended: {served:?}", door.clients),
                    Err(error) => format!("a door has ended: {error}"),
                })
            }
            () = stop => {
                tracing::info!("stopping: transferring leadership first");
                self.running.stop().await
            }
        };
        self.doors.abort_all();
        // The file is for people: left behind, it would point at a process that is gone.
        let _ = fs::remove_file(&self.pid_file);
        match end {
            StopReason::Asked => Ok(()),
            StopReason::Fault(why) | StopReason::Lost { why, .. } => Err(why),
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
    bound.map_err(|error| format!("{error}; or use --{name} IP:PORT, or --{name} off"))
}

/// Checks that all these ports are free right now.
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
            format!("{ip} is not an address of this machine: choose another with --listen IP")
        }
        _ => format!("can't listen on {ip} port {port}: {error}"),
    }
}
