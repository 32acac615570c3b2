//! The TLS settings in the URL of an engine that speaks gRPC.

use crate::error::Error;
use crate::url::EngineUrl;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// What the files named in a URL contain, as PEM.
#[derive(Default)]
pub(super) struct TlsFiles {
    /// The authority of the servers' certificates; `None` for those that the system trusts.
    pub(super) ca: Option<Vec<u8>>,
    /// The client's certificate and its private key.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsFiles {
    /// `options` are those of the authority, the certificate and the private key.
    pub(super) fn read(url: &EngineUrl, options: [&str; 3]) -> Result<Self, Error> {
        let [ca, cert, key] = options;
        let file = |option: &str| {
            let Some(path) = url.option(option) else { return Ok(None) };
            let bad = |error| Error::BadUrl(format!("{option}={path}: {error}"));
            std::fs::read(path).map(Some).map_err(bad)
        };
        let identity = match (file(cert)?, file(key)?) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                let why = format!("`{cert}` and `{key}` go together: the client's certificate");
                return Err(Error::BadUrl(why));
            }
        };
        Ok(Self { ca: file(ca)?, identity })
    }

    pub(super) fn config(&self) -> ClientTlsConfig {
        let config = match &self.ca {
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        match &self.identity {
            Some((cert, key)) => config.identity(Identity::from_pem(cert, key)),
            None => config,
        }
    }
}
