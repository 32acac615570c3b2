//! TLS as libpq's `sslmode` has it: `prefer` and `require` encrypt without checking who answers,
//! `verify-full` checks the certificate and the host's name.

use crate::error::Error;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

pub(super) fn connector(verify: bool, roots: Option<&str>) -> Result<MakeRustlsConnect, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Unsupported(format!("TLS: {error}")))?;
    let config = if verify {
        builder.with_root_certificates(root_store(roots)?).with_no_client_auth()
    } else if roots.is_some() {
        return Err(Error::BadUrl("`sslrootcert` goes with `sslmode=verify-full`".to_owned()));
    } else {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth()
    };
    Ok(MakeRustlsConnect::new(config))
}

fn root_store(file: Option<&str>) -> Result<RootCertStore, Error> {
    let bad = |why: String| Error::BadUrl(format!("cannot use `sslrootcert`: {why}"));
    let mut store = RootCertStore::empty();
    match file.filter(|file| *file != "system") {
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
        return Err(bad("it has no certificates: write `sslrootcert=FILE` (PEM)".to_owned()));
    }
    Ok(store)
}

/// Checks that the server has the key of the certificate it shows, not whose certificate it is.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
