//! TLS settings shared by the drivers: authorities and client certificates from PEM files.

use crate::error::Error;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// A client's certificate and key, as options of a URL.
pub(super) struct Identity<'a> {
    /// The options' names, for errors.
    pub(super) options: [&'static str; 2],
    pub(super) certificate: &'a str,
    pub(super) key: &'a str,
}

/// Verifies the server's certificate against the authorities in a PEM file, or the system's.
#[cfg(feature = "cassandra")]
pub(super) fn verifying(
    authorities: (&'static str, Option<&str>),
    identity: Option<Identity<'_>>,
) -> Result<ClientConfig, Error> {
    let (option, file) = authorities;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Unsupported(format!("TLS: {error}")))?
        .with_root_certificates(root_store(option, file)?);
    let Some(Identity { options, certificate, key }) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let bad = |option: &str, file: &str, why: &dyn std::fmt::Display| {
        Error::BadUrl(format!("`{option}={file}`: {why}"))
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(options[0], certificate, &error))?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| bad(options[1], key, &error))?;
    builder
        .with_client_auth_cert(chain, private)
        .map_err(|error| bad(options[0], certificate, &error))
}

/// The authorities in a PEM file, or the system's.
pub(super) fn root_store(option: &str, file: Option<&str>) -> Result<RootCertStore, Error> {
    let bad = |why: String| Error::BadUrl(format!("cannot use `{option}`: {why}"));
    let mut store = RootCertStore::empty();
    match file {
        Some(file) => {
            let certificates = CertificateDer::pem_file_iter(file)
                .map_err(|error| bad(format!("{file}: {error}")))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| bad(format!("{file}: {error}")))?;
                store.add(certificate).map_err(|error| bad(format!("{file}: {error}")))?;
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if store.is_empty() {
        return Err(bad(format!("it has no certificates: write `{option}=FILE` (PEM)")));
    }
    Ok(store)
}
