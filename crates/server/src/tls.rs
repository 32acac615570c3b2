//! TLS for every door and between nodes: one certificate with its key, and the authorities that
//! others' certificates are verified with. The files are reloaded when they change.

use crate::stream::Stream;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// How often the files are checked for changes.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// HTTP/2 and HTTP/1 share one port: the client chooses.
const HTTP_PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The certificate files of a node, all in PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The node's certificate, followed by the intermediate ones. The node presents it as a server
    /// and, to other nodes, as a client.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that signs the certificates of all nodes.
    pub ca: PathBuf,
    /// The authority that signs clients' certificates. `None` if clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// The current certificates of a node. A clone shares them.
#[derive(Clone)]
pub struct Tls {
    files: TlsFiles,
    current: Arc<Mutex<Configs>>,
}

/// Everything that is derived from the files.
#[derive(Clone)]
struct Configs {
    http: Arc<ServerConfig>,
    door: Arc<ServerConfig>,
    peer_server: Arc<ServerConfig>,
    peer_client: Arc<ClientConfig>,
}

/// The kind of connection that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepting {
    /// HTTP and gRPC clients.
    Http,
    /// Clients of any other door.
    Door,
    /// Other nodes, which must present a certificate.
    Peer,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    pub fn load(files: TlsFiles) -> Result<Self, String> {
        let current = Arc::new(Mutex::new(Configs::load(&files)?));
        Ok(Self { files, current })
    }

    fn current(&self) -> MutexGuard<'_, Configs> {
        // No code panics while holding the lock.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encrypts an accepted connection. A client that does not speak TLS gets `plaintext_reply`.
    pub(crate) fn accept(
        &self,
        tcp: TcpStream,
        accepting: Accepting,
        plaintext_reply: &'static [u8],
    ) -> io::Result<Stream> {
        let configs = self.current();
        let config = match accepting {
            Accepting::Http => &configs.http,
            Accepting::Door => &configs.door,
            Accepting::Peer => &configs.peer_server,
        };
        Stream::accepted(tcp, config.clone(), plaintext_reply)
    }

    /// Encrypts a connection to another node, whose certificate must be valid for `host`.
    pub(crate) fn dial(&self, tcp: TcpStream, host: &str) -> Result<Stream, String> {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone())
            .map_err(|_| format!("`{host}` can't be in a certificate"))?;
        let config = self.current().peer_client.clone();
        Stream::dialed(tcp, config, name).map_err(|error| error.to_string())
    }

    /// Reloads the files whenever one changes. Open connections are not affected. If the new files
    /// can't be used, that is reported, and the previous ones stay in use.
    pub(crate) async fn keep_current(self) {
        let mut seen = self.files.changed_at();
        loop {
            sleep(CHECK_EVERY).await;
            let now = self.files.changed_at();
            if now == seen {
                continue;
            }
            seen = now;
            match Configs::load(&self.files) {
                Ok(configs) => {
                    *self.current() = configs;
                    tracing::info!("reloaded the TLS certificates");
                }
                Err(why) => {
                    tracing::error!("can't use the new TLS certificates, the old ones stay: {why}");
                }
            }
        }
    }
}

impl TlsFiles {
    fn all(&self) -> impl Iterator<Item = &Path> {
        let files = [Some(&self.cert), Some(&self.key), Some(&self.ca), self.client_ca.as_ref()];
        files.into_iter().flatten().map(PathBuf::as_path)
    }

    /// When each file was last modified, and its size. `None` if that is not known.
    fn changed_at(&self) -> Vec<Option<(SystemTime, u64)>> {
        let changed = |path: &Path| {
            let about = fs::metadata(path).ok()?;
            Some((about.modified().ok()?, about.len()))
        };
        self.all().map(changed).collect()
    }
}

impl Configs {
    fn load(files: &TlsFiles) -> Result<Self, String> {
        let chain = certificates(&files.cert)?;
        let key = || private_key(&files.key);
        let nodes = authorities(&files.ca)?;
        let clients = files.client_ca.as_deref().map(authorities).transpose()?;
        let unusable = |why: rustls::Error| {
            let (cert, key) = (files.cert.display(), files.key.display());
            format!("{cert} and {key} can't be used: {why}")
        };
        let unusable_ca =
            |path: &Path, why: String| format!("{} can't be used: {why}", path.display());

        let client_verifier = match (&clients, &files.client_ca) {
            (Some(roots), Some(path)) => {
                WebPkiClientVerifier::builder_with_provider(roots.clone(), provider())
                    .allow_unauthenticated()
                    .build()
                    .map_err(|why| unusable_ca(path, why.to_string()))?
            }
            _ => WebPkiClientVerifier::no_client_auth(),
        };
        let door = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_client_cert_verifier(client_verifier)
            .with_single_cert(chain.clone(), key()?)
            .map_err(unusable)?;
        let mut http = door.clone();
        http.alpn_protocols = HTTP_PROTOCOLS.map(<[u8]>::to_vec).into();

        let node_verifier = WebPkiClientVerifier::builder_with_provider(nodes.clone(), provider())
            .build()
            .map_err(|why| unusable_ca(&files.ca, why.to_string()))?;
        let peer_server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_client_cert_verifier(node_verifier)
            .with_single_cert(chain.clone(), key()?)
            .map_err(unusable)?;
        let server_verifier = WebPkiServerVerifier::builder_with_provider(nodes, provider())
            .build()
            .map_err(|why| unusable_ca(&files.ca, why.to_string()))?;
        let peer_client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_webpki_verifier(server_verifier)
            .with_client_auth_cert(chain, key()?)
            .map_err(unusable)?;
        Ok(Self {
            http: Arc::new(http),
            door: Arc::new(door),
            peer_server: Arc::new(peer_server),
            peer_client: Arc::new(peer_client),
        })
    }
}

/// Chosen explicitly, because other crates in the binary enable another provider.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = path.display();
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("can't read certificates from {shown}: {error}"))?;
    if all.is_empty() {
        return Err(format!("{shown} has no certificate: it must be PEM, BEGIN CERTIFICATE"));
    }
    Ok(all)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| format!("can't read a private key from {}: {error}", path.display()))
}

fn authorities(path: &Path) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| {
            format!("{} has a certificate that can't be used: {error}", path.display())
        })?;
    }
    Ok(Arc::new(roots))
}
