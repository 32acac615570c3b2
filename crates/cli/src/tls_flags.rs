//! How client commands verify the servers at `https://` addresses, and prove who they are.

use crate::exit::Problem;
use clap::Args;
use rustls::crypto::ring;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// The certificates for `https://` servers.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TlsFlags {
    /// For https:// servers: the authority that signs their certificates. Default: those that the
    /// system trusts
    #[arg(long, value_name = "FILE", env = "HOLDFAST_CA", help_heading = "Server")]
    ca: Option<PathBuf>,
    /// For https:// servers: the certificate of this client
    #[arg(long, value_name = "FILE", env = "HOLDFAST_CERT", help_heading = "Server")]
    cert: Option<PathBuf>,
    /// The private key of that certificate
    #[arg(long, value_name = "FILE", env = "HOLDFAST_KEY", help_heading = "Server")]
    key: Option<PathBuf>,
    /// The name in the servers' certificates, if it is not the host in their URLs
    #[arg(long, value_name = "NAME", env = "HOLDFAST_SERVER_NAME", help_heading = "Server")]
    server_name: Option<String>,
}

/// A certificate and its key, as PEM.
type Identity = (Vec<u8>, Vec<u8>);

/// The ids of the flags above.
pub(crate) const TLS_FLAGS: [&str; 4] = ["ca", "cert", "key", "server_name"];

impl TlsFlags {
    /// For a child process with another working directory: variables with absolute paths.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let absolute = |file: &PathBuf| std::path::absolute(file).unwrap_or_else(|_| file.clone());
        let file = |file: &Option<PathBuf>| file.as_ref().map(|file| absolute(file).into());
        let name = self.server_name.clone().map(OsString::from);
        [
            ("HOLDFAST_CA", file(&self.ca)),
            ("HOLDFAST_CERT", file(&self.cert)),
            ("HOLDFAST_KEY", file(&self.key)),
            ("HOLDFAST_SERVER_NAME", name),
        ]
        .into_iter()
        .filter_map(|(variable, value)| Some((variable, value?)))
    }

    /// The certificate and the key, as PEM.
    fn identity(&self) -> Result<Option<Identity>, Problem> {
        match (&self.cert, &self.key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => Ok(Some((read(cert)?, read(key)?))),
            _ => Err(Problem::usage("--cert and --key belong together")),
        }
    }

    /// The native client with these certificates.
    pub(crate) fn client(
        &self,
        mut builder: holdfast_client::Builder,
    ) -> Result<holdfast_client::Builder, Problem> {
        if let Some(ca) = &self.ca {
            builder = builder.ca_certificate(read(ca)?);
        }
        if let Some((cert, key)) = self.identity()? {
            builder = builder.client_certificate(cert, key);
        }
        if let Some(name) = &self.server_name {
            builder = builder.server_name(name);
        }
        Ok(builder)
    }

    /// For single requests to one server; `config` has everything but TLS.
    pub(crate) fn agent(
        &self,
        config: ureq::config::ConfigBuilder<ureq::typestate::AgentScope>,
        server: &str,
    ) -> Result<Agent, Problem> {
        if !server.starts_with("https://") {
            return Ok(config.build().into());
        }
        let roots = match &self.ca {
            Some(file) => certificates(file)?,
            None => {
                let found = rustls_native_certs::load_native_certs().certs;
                found.iter().map(|der| Certificate::from_der(der).to_owned()).collect()
            }
        };
        let mut tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&roots))
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
        if let Some((_, key)) = self.identity()? {
            let chain = self.cert.as_deref().map(certificates).transpose()?.unwrap_or_default();
            let key = PrivateKey::from_pem(&key)
                .map_err(|error| Problem::usage(format!("--key can't be used: {error}")))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
        let config = config.tls_config(tls.build()).build();
        let Some(name) = &self.server_name else { return Ok(config.into()) };
        let real = server.parse().map_err(|_| Problem::usage(format!("{server} is not a URL")))?;
        let resolver = Renamed { name: name.clone(), real };
        Ok(Agent::with_parts(config, DefaultConnector::default(), resolver))
    }

    /// The URL to request, so that the name in it is the one in the server's certificate.
    pub(crate) fn url(&self, server: &str) -> String {
        let uri: Option<Uri> = server.parse().ok().filter(|_| server.starts_with("https://"));
        match (&self.server_name, uri) {
            (Some(name), Some(uri)) => {
                format!("https://{name}:{}", uri.port_u16().unwrap_or(443))
            }
            _ => server.to_owned(),
        }
    }
}

/// Resolves the name in a server's certificate to that server's real address.
#[derive(Debug)]
struct Renamed {
    name: String,
    real: Uri,
}

impl Resolver for Renamed {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let uri = if uri.host() == Some(&self.name) { &self.real } else { uri };
        DefaultResolver::default().resolve(uri, config, timeout)
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Problem> {
    fs::read(file)
        .map_err(|error| Problem::usage(format!("can't read {}: {error}", file.display())))
}

fn certificates(file: &Path) -> Result<Vec<Certificate<'static>>, Problem> {
    let pem = read(file)?;
    let found: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        let why = format!("{} has no certificate: it must be PEM", file.display());
        return Err(Problem::usage(why));
    }
    Ok(found)
}
