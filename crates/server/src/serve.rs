//! A whole server: listeners, the node behind them, an orderly end.

use crate::api::Api;
use crate::data::{First, PID_FILE, Place};
use crate::engine::End;
use crate::http;
use crate::node::Running;
use crate::password::Password;
use crate::peers::Contact;
use crate::redis;
use holdfast_node::NodeId;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
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
    /// Further names under which HTTP clients may address it.
    pub allow_hosts: Vec<String>,
    /// The port for HTTP; the others follow from it.
    pub port: u16,
    /// Where Redis clients come in.
    pub redis: RedisDoor,
    /// The file of the cluster's key; none for the one in the data folder.
    pub key: Option<PathBuf>,
    /// What an empty folder is to become.
    pub first: First,
    /// Asked for in every door; none for nobody.
    pub password: Option<Password>,
}

/// Peers are reached so many ports above HTTP.
pub const PEER_PORT_ABOVE: u16 = 10;

/// Redis clients come in so many ports above HTTP.
pub const REDIS_PORT_ABOVE: u16 = 1;

/// Where Redis clients come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedisDoor {
    /// At the address that the node listens on, one port above HTTP.
    #[default]
    Usual,
    /// There.
    At(SocketAddr),
    /// Nowhere.
    Off,
}

impl FromStr for RedisDoor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        let wrong = |_| format!("`{text}` is no address: write IP:PORT, or off");
        text.parse().map(Self::At).map_err(wrong)
    }
}

impl fmt::Display for RedisDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str("the next port"),
            Self::At(address) => address.fmt(f),
            Self::Off => f.write_str("off"),
        }
    }
}

impl Config {
    /// The port for peers.
    pub fn peer_port(&self) -> Result<u16, String> {
        let port = self.port.checked_add(PEER_PORT_ABOVE);
        port.ok_or_else(|| format!("--port {} leaves no room for the other ports", self.port))
    }

    /// Where Redis clients come in; none if nowhere.
    pub fn redis(&self) -> Result<Option<SocketAddr>, String> {
        match self.redis {
            RedisDoor::Off => Ok(None),
            RedisDoor::At(address) => Ok(Some(address)),
            RedisDoor::Usual => {
                // The highest port of all is asked for first: if there is room for it, there is here.
                self.peer_port()?;
                Ok(Some(SocketAddr::new(self.listen, self.port.saturating_add(REDIS_PORT_ABOVE))))
            }
        }
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
    http: tokio::task::JoinHandle<io::Result<()>>,
    redis: Option<tokio::task::JoinHandle<io::Result<()>>>,
    pid_file: PathBuf,
}

impl Server {
    /// Starts everything; when it returns, the ports are open.
    pub fn start(config: &Config) -> Boxed<'_, Result<Self, String>> {
        Box::pin(Self::start_all(config))
    }

    async fn start_all(config: &Config) -> Result<Self, String> {
        let http = bind(config.listen, config.port).await?;
        let peers = bind(config.listen, config.peer_port()?).await?;
        let redis = match config.redis()? {
            Some(address) => Some(bind_redis(address).await?),
            None => None,
        };
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
        let redis = redis.map(|listener| {
            let (channels, password) = (running.channels.clone(), config.password.clone());
            tokio::spawn(redis::serve(listener, api.clone(), channels, password))
        });
        let hosts = config.advertise.iter().chain(&config.allow_hosts).cloned().collect();
        let http = tokio::spawn(http::serve(http, api, config.password.clone(), hosts));
        Ok(Self { running, http, redis, pid_file })
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
        if let Some(redis) = self.redis {
            redis.abort();
        }
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

async fn bind_redis(address: SocketAddr) -> Result<TcpListener, String> {
    let hint = "or say --redis IP:PORT, or --redis off";
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("{}; {hint}", not_bound(address.ip(), address.port(), &error)))
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
