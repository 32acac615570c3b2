//! Where a node's settings come from, in order of precedence: flags, the environment, a TOML file,
//! defaults.

use crate::door_flags::DoorFlags;
use clap::Args;
use holdfast_server::{Config, DOORS, Door, First, Password, TlsFiles};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use toml::Spanned;

/// The default port for HTTP.
const PORT: u16 = 7400;

/// Where a node listens and is reached.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Address {
    /// The address to listen on. Default: 127.0.0.1
    #[arg(long, value_name = "IP", env = "HOLDFAST_LISTEN")]
    listen: Option<IpAddr>,
    /// The address at which others reach this node. Default: the listen address
    #[arg(long, value_name = "HOST", env = "HOLDFAST_ADVERTISE")]
    advertise: Option<String>,
    /// Without a password: names under which HTTP clients may address this node, besides IP
    /// addresses, localhost and the advertised one
    #[arg(long, value_name = "HOST,...", value_delimiter = ',', env = "HOLDFAST_ALLOW_HOST")]
    allow_host: Vec<String>,
    /// The port for HTTP and gRPC. Default: 7400. Redis clients use PORT+1, ZooKeeper clients PORT+2,
    /// peers PORT+10
    #[arg(long, value_name = "BASE", env = "HOLDFAST_PORT")]
    port: Option<u16>,
    #[command(flatten)]
    doors: DoorFlags,
    /// A file whose first line is the password that every door asks for
    #[arg(long, value_name = "FILE", env = "HOLDFAST_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
    /// This node's certificate, as PEM; every port then speaks TLS, and nothing else. `holdfast
    /// certs` makes one
    #[arg(long, value_name = "FILE", env = "HOLDFAST_TLS_CERT", help_heading = "TLS")]
    tls_cert: Option<PathBuf>,
    /// The private key of that certificate
    #[arg(long, value_name = "FILE", env = "HOLDFAST_TLS_KEY", help_heading = "TLS")]
    tls_key: Option<PathBuf>,
    /// The authority that signs the certificates of all nodes
    #[arg(long, value_name = "FILE", env = "HOLDFAST_TLS_CA", help_heading = "TLS")]
    tls_ca: Option<PathBuf>,
    /// The authority that signs clients' certificates. Default: clients are not asked for one
    #[arg(long, value_name = "FILE", env = "HOLDFAST_TLS_CLIENT_CA", help_heading = "TLS")]
    tls_client_ca: Option<PathBuf>,
    /// Listen beyond this machine without a password
    #[arg(long, env = "HOLDFAST_INSECURE")]
    insecure: bool,
    /// The password itself. Only the file can set it: flags and the environment can be seen by
    /// others.
    #[arg(skip)]
    password: Option<Password>,
}

impl Address {
    /// Falls back to `other` for what is not set here.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            advertise: self.advertise.or(other.advertise),
            allow_host: if self.allow_host.is_empty() { other.allow_host } else { self.allow_host },
            port: self.port.or(other.port),
            doors: self.doors.or(other.doors),
            // The first source that sets either form wins.
            password: self.password.or(other.password).filter(|_| self.password_file.is_none()),
            password_file: self.password_file.or(other.password_file),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_ca: self.tls_ca.or(other.tls_ca),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            insecure: self.insecure || other.insecure,
        }
    }

    fn listen(&self) -> IpAddr {
        self.listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn port(&self) -> u16 {
        self.port.unwrap_or(PORT)
    }

    /// The address of each configurable door, defaults included.
    fn doors_shown(&self) -> BTreeMap<String, String> {
        let addresses = self.doors.addresses();
        let shown = |door: &Door| {
            let address = addresses.resolve(door, self.listen(), self.port());
            address.map_or_else(|| "off".to_owned(), |address| address.to_string())
        };
        let doors = DOORS.iter().filter(|door| door.setting.is_some());
        doors.map(|door| (door.name.to_owned(), shown(door))).collect()
    }

    /// As flags, ready to paste. Defaults are left out.
    pub(crate) fn words(&self) -> String {
        let mut words = String::new();
        if !self.listen().is_loopback() {
            words += &format!(" --listen {}", self.listen());
        }
        if let Some(file) = &self.password_file {
            words += &format!(" --password-file {}", file.display());
        }
        let tls = [
            ("cert", &self.tls_cert),
            ("key", &self.tls_key),
            ("ca", &self.tls_ca),
            ("client-ca", &self.tls_client_ca),
        ];
        for (name, file) in tls {
            if let Some(file) = file {
                words += &format!(" --tls-{name} {}", file.display());
            }
        }
        if self.insecure {
            words += " --insecure";
        }
        if let Some(host) = &self.advertise {
            words += &format!(" --advertise {host}");
        }
        if !self.allow_host.is_empty() {
            words += &format!(" --allow-host {}", self.allow_host.join(","));
        }
        if self.port() != PORT {
            words += &format!(" --port {}", self.port());
        }
        words + &self.doors.words()
    }

    fn tls(&self) -> Result<Option<TlsFiles>, String> {
        let files = (self.tls_cert.clone(), self.tls_key.clone(), self.tls_ca.clone());
        let client_ca = self.tls_client_ca.clone();
        match (files, client_ca) {
            ((None, None, None), None) => Ok(None),
            ((Some(cert), Some(key), Some(ca)), client_ca) => {
                Ok(Some(TlsFiles { cert, key, ca, client_ca }))
            }
            _ => Err(
                "TLS needs --tls-cert, --tls-key and --tls-ca: `holdfast certs --help` shows how \
                      to make them"
                    .to_owned(),
            ),
        }
    }

    pub(crate) fn config(&self, data_dir: PathBuf, first: First) -> Result<Config, String> {
        let password = match (&self.password_file, &self.password) {
            (Some(file), _) => Some(Password::read(file)?),
            (None, password) => password.clone(),
        };
        let listen = self.listen();
        let doors = self.doors.addresses();
        let open = DOORS.iter().filter_map(|door| doors.resolve(door, listen, self.port()));
        let beyond = open.map(|address| address.ip()).find(|ip| !ip.is_loopback());
        let tls = self.tls()?;
        if let Some(listen) = beyond.filter(|_| !self.insecure) {
            let (risk, remedy) = match (&password, &tls) {
                (Some(_), Some(_)) => ("", ""),
                (None, _) => (
                    "lets anyone who can reach it take and break locks",
                    "use --password-file FILE",
                ),
                (Some(_), None) => (
                    "sends the password and all traffic unencrypted",
                    "use --tls-cert, --tls-key and --tls-ca (`holdfast certs` makes them)",
                ),
            };
            if !risk.is_empty() {
                let accept = "or --insecure if that is intended";
                return Err(format!("listening on {listen} {risk}: {remedy}, {accept}"));
            }
        }
        if listen.is_unspecified() && self.advertise.is_none() {
            return Err(format!(
                "{listen} is not an address that others can reach: use --advertise HOST"
            ));
        }
        Ok(Config {
            data_dir,
            listen,
            advertise: self.advertise.clone(),
            allow_hosts: self.allow_host.clone(),
            port: self.port(),
            doors,
            key: None,
            first,
            password,
            tls,
        })
    }
}

/// Everything that `serve` can be told, as flags, in the environment or in a file.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Settings {
    /// The folder of this node's data
    #[arg(long, value_name = "FOLDER", env = "HOLDFAST_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) address: Address,
    /// The cluster's key; by default `cluster.key` in the data folder
    #[arg(long, value_name = "FILE", env = "HOLDFAST_CLUSTER_KEY")]
    pub(crate) cluster_key: Option<PathBuf>,
    /// Which of the first members this node is
    #[arg(long, value_name = "ID", env = "HOLDFAST_NODE")]
    pub(crate) node: Option<u64>,
    /// All first members of a new cluster, with their peer addresses
    #[arg(long, value_name = "ID=HOST:PORT,...", value_delimiter = ',', env = "HOLDFAST_MEMBERS")]
    pub(crate) members: Vec<String>,
    /// Join a running cluster: the peer addresses of its members
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', env = "HOLDFAST_JOIN")]
    pub(crate) join: Vec<String>,
}

impl Settings {
    /// Reads a settings file.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let shown = file.display();
        let text =
            fs::read_to_string(file).map_err(|error| format!("can't read {shown}: {error}"))?;
        File::parse(&text)
            .and_then(File::settings)
            .map_err(|error| format!("{shown} is invalid: {error}"))
    }

    /// Falls back to `other` for what is not set here.
    pub(crate) fn or(self, other: Self) -> Self {
        // What a new node becomes is taken from one source: mixing two would make something else.
        let sends_first = self.node.is_some() || !self.members.is_empty() || !self.join.is_empty();
        let (node, members, join) = if sends_first {
            (self.node, self.members, self.join)
        } else {
            (other.node, other.members, other.join)
        };
        Self {
            data_dir: self.data_dir.or(other.data_dir),
            address: self.address.or(other.address),
            cluster_key: self.cluster_key.or(other.cluster_key),
            node,
            members,
            join,
        }
    }

    /// As a settings file with the same effect. The password is left out.
    pub(crate) fn to_toml(&self) -> Result<String, String> {
        let text = toml::to_string(&File::of(self)).map_err(|error| error.to_string())?;
        let hidden = self.address.password.as_ref().map_or("", |_| "# password = is not shown\n");
        Ok(text + hidden)
    }
}

/// The keys of a settings file, except the doors'.
const KEYS: [&str; 16] = [
    "data_dir",
    "listen",
    "advertise",
    "allow_host",
    "port",
    "password_file",
    "password",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "tls_client_ca",
    "insecure",
    "cluster_key",
    "node",
    "members",
    "join",
];

/// The settings as they appear in a file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct File {
    data_dir: Option<PathBuf>,
    listen: Option<IpAddr>,
    advertise: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allow_host: Vec<String>,
    port: Option<u16>,
    /// All other keys: each must be a door's.
    #[serde(flatten)]
    doors: BTreeMap<String, String>,
    password_file: Option<PathBuf>,
    #[serde(skip_serializing)]
    password: Option<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    tls_client_ca: Option<PathBuf>,
    insecure: bool,
    cluster_key: Option<PathBuf>,
    node: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    join: Vec<String>,
}

impl File {
    fn parse(text: &str) -> Result<Self, String> {
        // Flattened keys lose their position in the text, so unknown keys are looked for first.
        let keys: BTreeMap<String, Spanned<toml::Value>> =
            toml::from_str(text).map_err(|error| error.to_string())?;
        let doors = DOORS.iter().filter(|door| door.setting.is_some()).map(|door| door.name);
        let known: Vec<&str> = KEYS.into_iter().chain(doors).collect();
        if let Some((key, value)) = keys.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            let before = text.get(..value.span().start).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let known = known.join(", ");
            return Err(format!("line {line}: unknown field `{key}`, expected one of {known}"));
        }
        toml::from_str(text).map_err(|error| error.to_string())
    }

    fn settings(self) -> Result<Settings, String> {
        if self.password.is_some() && self.password_file.is_some() {
            return Err("password and password_file are both set: keep one".to_owned());
        }
        let address = Address {
            listen: self.listen,
            advertise: self.advertise,
            allow_host: self.allow_host,
            port: self.port,
            doors: DoorFlags::parse(&self.doors)?,
            password_file: self.password_file,
            tls_cert: self.tls_cert,
            tls_key: self.tls_key,
            tls_ca: self.tls_ca,
            tls_client_ca: self.tls_client_ca,
            insecure: self.insecure,
            password: self.password.as_deref().map(Password::parse).transpose()?,
        };
        Ok(Settings {
            data_dir: self.data_dir,
            address,
            cluster_key: self.cluster_key,
            node: self.node,
            members: self.members,
            join: self.join,
        })
    }

    /// With all defaults filled in.
    fn of(settings: &Settings) -> Self {
        let Settings { data_dir, address, cluster_key, node, members, join } = settings.clone();
        Self {
            data_dir,
            listen: Some(address.listen()),
            port: Some(address.port()),
            doors: address.doors_shown(),
            advertise: address.advertise,
            allow_host: address.allow_host,
            password_file: address.password_file,
            password: None,
            tls_cert: address.tls_cert,
            tls_key: address.tls_key,
            tls_ca: address.tls_ca,
            tls_client_ca: address.tls_client_ca,
            insecure: address.insecure,
            cluster_key,
            node,
            members,
            join,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Settings {
        File::parse(text).unwrap().settings().unwrap()
    }

    #[test]
    fn first_source_wins() {
        let flags = parse("node = 2\nport = 9000");
        let file = parse("data_dir = 'd'\nnode = 1\nport = 8000\nlisten = '10.0.0.1'");
        let both = flags.or(file);
        assert_eq!((both.node, both.address.port()), (Some(2), 9000));
        assert_eq!(both.data_dir, Some("d".into()));
        assert_eq!(both.address.listen().to_string(), "10.0.0.1");
    }

    #[test]
    fn join_overrides_members_from_the_file() {
        let flags = parse("join = ['10.0.0.1:7410']");
        let both = flags.or(parse("node = 1\nmembers = ['1=10.0.0.1:7410']"));
        assert_eq!((both.node, both.members.len(), both.join.len()), (None, 0, 1));
    }

    #[test]
    fn redis_address_can_be_set_or_turned_off() {
        let printed = |text: &str| parse(text).to_toml().unwrap();
        assert!(printed("port = 8000").contains("redis = \"127.0.0.1:8001\""));
        assert!(printed("redis = '127.0.0.1:6379'").contains("redis = \"127.0.0.1:6379\""));
        assert!(printed("redis = 'off'").contains("redis = \"off\""));
        let config = |text: &str| parse(text).address.config("d".into(), First::Alone);
        let open = config("redis = 'off'").unwrap().open_doors().unwrap();
        assert!(open.iter().all(|(door, _)| door.name != "redis"));
        let open = config("redis = '0.0.0.0:6379'").unwrap_err();
        assert!(open.contains("--password-file"), "{open}");
        let wrong = File::parse("redis = '6379'").unwrap().settings().unwrap_err();
        assert!(wrong.contains("write IP:PORT, or off"), "{wrong}");
    }

    #[test]
    fn where_zookeeper_clients_come_in() {
        let printed = |text: &str| parse(text).to_toml().unwrap();
        assert!(printed("port = 8000").contains("zookeeper = \"127.0.0.1:8002\""));
        assert!(printed("zookeeper = '127.0.0.1:2181'").contains("\"127.0.0.1:2181\""));
        assert!(printed("zookeeper = 'off'").contains("zookeeper = \"off\""));
    }

    #[test]
    fn password_file_from_a_stronger_source_overrides_password() {
        let flags = parse("password_file = 'p'");
        let both = flags.or(parse("password = 'open sesame'"));
        assert!(both.address.password.is_none() && both.address.password_file.is_some());
    }

    #[test]
    fn printed_settings_parse_back_to_the_same() {
        let settings = parse("data_dir = 'd'\nmembers = ['1=a:1', '2=b:2']\nnode = 1");
        let again = parse(&settings.to_toml().unwrap());
        assert_eq!(again.members, settings.members);
        assert_eq!(again.address.port, Some(PORT));
    }

    #[test]
    fn password_is_not_printed() {
        let printed = parse("data_dir = 'd'\npassword = 'open sesame'").to_toml().unwrap();
        assert!(!printed.contains("sesame") && printed.contains("# password"), "{printed}");
        parse(&printed);
    }

    #[test]
    fn unknown_fields_are_named() {
        let wrong = File::parse("port = 8000\ndta_dir = 'd'").unwrap_err();
        assert!(wrong.contains("line 2") && wrong.contains("`dta_dir`"), "{wrong}");
    }
}
