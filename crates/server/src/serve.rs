//! A whole server: listeners, the node behind them, an orderly end.

use crate::api::Api;
use crate::data::{First, PID_FILE, Place};
use crate::engine::End;
use crate::http;
use crate::node::Running;
use crate::password::Password;
use crate::peers::Contact;
use holdfast_node::NodeId;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use tokio::net::TcpListener;

/// What a server needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder of its data.
    pub data_dir: PathBuf,
    /// The address that it listens on.
    pub listen: IpAddr,
    /// Where others reach it, if not at that address.
    pub advertise: Option<String>,
    /// The port for HTTP; the others follow from it.
    pub port: u16,
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

/// A server that runs.
pub struct Server {
    running: Running,
    http: tokio::task::JoinHandle<io::Result<()>>,
    pid_file: PathBuf,
}

impl Server {
    /// Starts everything; when it returns, the ports are open.
    pub async fn start(config: &Config) -> Result<Self, String> {
        let http = bind(config.listen, config.port).await?;
        let peers = bind(config.listen, config.peer_port()?).await?;
        let running = Running::start(&config.place()?, peers).await?;
        let pid_file = config.data_dir.join(PID_FILE);
        fs::write(&pid_file, format!("{}\n", std::process::id()))
            .map_err(|error| format!("can't write {}: {error}", pid_file.display()))?;
        let api = Api {
            id: running.id,
            handle: running.handle.clone(),
            membership: running.membership.clone(),
            metrics: running.metrics.clone(),
        };
        let http = tokio::spawn(http::serve(http, api, config.password.clone()));
        Ok(Self { running, http, pid_file })
    }

    /// Which member it is.
    pub fn id(&self) -> NodeId {
        self.running.id
    }

    /// Runs until it is told to stop, or must.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), String> {
        let end = tokio::select! {
            end = self.running.ended() => end,
            ended = &mut self.http => {
                let why = ended.map_or_else(|error| error.to_string(), |served| format!("{served:?}"));
                self.running.stop().await;
                End::Fault(format!("the HTTP door has ended: {why}"))
            }
            () = stop => {
                tracing::info!("stopping: leadership goes to another node first");
                self.running.stop().await
            }
        };
        self.http.abort();
        // It is for people; one that stays tells them of a process that is gone.
        let _ = fs::remove_file(&self.pid_file);
        match end {
            End::Asked => Ok(()),
            End::Fault(why) => Err(why),
        }
    }
}

async fn bind(ip: IpAddr, port: u16) -> Result<TcpListener, String> {
    TcpListener::bind((ip, port)).await.map_err(|error| not_bound(ip, port, &error))
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
