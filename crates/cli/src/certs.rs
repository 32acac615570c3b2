//! `holdfast certs`: creates a certificate authority, and certificates that it signs.

use crate::stderr::eprint_line;
use crate::wall;
use clap::{Args, Subcommand};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The files of an authority.
pub(crate) const CA_CERT: &str = "ca.pem";
const CA_KEY: &str = "ca-key.pem";

/// The subject of every authority made here. Certificates are signed under this name, so that the
/// authority's own certificate need not be parsed.
const CA_NAME: &str = "Holdfast CA";

/// How long an authority is valid.
const CA_DAYS: u64 = 3_650;

/// Certificates are valid from this long ago, for machines whose clocks are behind.
const CLOCKS_DIFFER: Duration = Duration::from_hours(24);

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  holdfast certs ca certs                      certs/ca.pem and its key
  holdfast certs node certs node-1 10.0.0.1    certs/node-1.pem and its key
  holdfast certs client certs ana              certs/ana.pem and its key

Copy ca.pem to every machine, and a certificate with its key to the one that it is for. Keep
ca-key.pem off all of them: whoever has it can make a certificate for anyone.")]
pub(crate) enum Certs {
    /// Make an authority
    Ca(Ca),
    /// Make a node's certificate, for the hosts at which clients and other nodes reach it
    Node(NodeCert),
    /// Make a client's certificate
    Client(ClientCert),
}

#[derive(Debug, Args)]
pub(crate) struct Ca {
    /// The folder for the authority's files
    folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct NodeCert {
    /// The authority's folder; the certificate is written there too
    folder: PathBuf,
    /// The node's name, used in the certificate and its file name
    name: String,
    /// Host names and IP addresses of the node; localhost is always included
    #[arg(required = true)]
    hosts: Vec<String>,
    /// How many days the certificate is valid
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=3650))]
    days: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ClientCert {
    /// The authority's folder; the certificate is written there too
    folder: PathBuf,
    /// The client's name, used in the certificate and its file name
    name: String,
    /// How many days the certificate is valid
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=3650))]
    days: u64,
}

impl Certs {
    pub(crate) fn run(self) -> Result<(), String> {
        let made = match self {
            Self::Ca(Ca { folder }) => make_ca(&folder)?,
            Self::Node(NodeCert { folder, name, hosts, days }) => {
                make_node(&folder, &name, &hosts, days)?
            }
            Self::Client(ClientCert { folder, name, days }) => {
                let params = params(&name, &[], days)?;
                sign(&folder, &name, params, &[ExtendedKeyUsagePurpose::ClientAuth])?
            }
        };
        eprint_line!("wrote {} and {}", made.cert.display(), made.key.display());
        Ok(())
    }
}

/// The files of a certificate.
pub(crate) struct Made {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Makes an authority in a folder, which is created if necessary.
pub(crate) fn make_ca(folder: &Path) -> Result<Made, String> {
    fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let cert = ca_params()?.self_signed(&key).map_err(|error| error.to_string())?;
    let made = Made { cert: folder.join(CA_CERT), key: folder.join(CA_KEY) };
    write(&made, &cert.pem(), &key.serialize_pem())?;
    Ok(made)
}

/// Makes a node's certificate with the authority in the folder.
pub(crate) fn make_node(
    folder: &Path,
    name: &str,
    hosts: &[String],
    days: u64,
) -> Result<Made, String> {
    let usual = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut all = hosts.to_vec();
    all.extend(usual.into_iter().filter(|host| !hosts.contains(host)));
    let purposes = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    sign(folder, name, params(name, &all, days)?, &purposes)
}

fn ca_params() -> Result<CertificateParams, String> {
    let mut params = params(CA_NAME, &[], CA_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn params(name: &str, hosts: &[String], days: u64) -> Result<CertificateParams, String> {
    if let Some(bad) = hosts.iter().find(|host| !is_host(host)) {
        return Err(format!(
            "`{bad}` is not a host: write a name or an IP address, without a port"
        ));
    }
    let mut params = CertificateParams::new(hosts.to_vec()).map_err(|error| error.to_string())?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = |since: Duration| {
        let (year, month, day) = wall::date(since.as_secs() / 86_400);
        let of = |value: u64| u8::try_from(value).unwrap_or(1);
        date_time_ymd(i32::try_from(year).unwrap_or(9_999), of(month), of(day))
    };
    params.not_before = date(now.saturating_sub(CLOCKS_DIFFER));
    params.not_after = date(now + Duration::from_hours(24) * u32::try_from(days + 1).unwrap_or(1));
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn is_host(text: &str) -> bool {
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-.*_".contains(c))
    };
    text.parse::<IpAddr>().is_ok() || is_name(text)
}

fn sign(
    folder: &Path,
    name: &str,
    mut params: CertificateParams,
    purposes: &[ExtendedKeyUsagePurpose],
) -> Result<Made, String> {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-._@".contains(c)) {
        return Err(format!("`{name}` is not a name: use letters, digits, `-`, `.`, `_` and `@`"));
    }
    let ca_key = folder.join(CA_KEY);
    let pem = fs::read_to_string(&ca_key).map_err(|error| {
        let (file, folder) = (ca_key.display(), folder.display());
        format!("can't read {file}: {error}; `holdfast certs ca {folder}` makes an authority")
    })?;
    let ca_key =
        KeyPair::from_pem(&pem).map_err(|error| format!("{}: {error}", ca_key.display()))?;
    let issuer = Issuer::new(ca_params()?, ca_key);
    params.extended_key_usages = purposes.to_vec();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let cert = params.signed_by(&key, &issuer).map_err(|error| error.to_string())?;
    let file = |suffix: &str| folder.join(format!("{name}{suffix}"));
    let made = Made { cert: file(".pem"), key: file("-key.pem") };
    write(&made, &cert.pem(), &key.serialize_pem())?;
    Ok(made)
}

/// Writes both files, which must not exist: a key that is overwritten is lost.
fn write(made: &Made, cert: &str, key: &str) -> Result<(), String> {
    for file in [&made.cert, &made.key] {
        if file.exists() {
            return Err(format!(
                "{} exists: remove it first, or choose another name",
                file.display()
            ));
        }
    }
    write_new(&made.key, 0o600, key)?;
    write_new(&made.cert, 0o644, cert)
}

fn write_new(file: &Path, mode: u32, content: &str) -> Result<(), String> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(file)
        .and_then(|mut opened| opened.write_all(content.as_bytes()));
    written.map_err(|error| cannot_write(file, &error))
}

fn cannot_write(file: &Path, error: &std::io::Error) -> String {
    format!("can't write {}: {error}", file.display())
}
