//! Certificates for servers that speak TLS.

use super::process::program;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The password of the keystores.
pub(crate) const PASSWORD: &str = "s3cret";

/// A self-signed certificate, which is its own authority.
pub(crate) struct Certificate {
    /// In PEM.
    pub(crate) file: PathBuf,
    /// Certificate and key, for Java: PKCS12.
    pub(crate) keystore: PathBuf,
}

impl Certificate {
    /// For a server with this name, for example `IP:127.0.0.1`; its file names begin with `what`.
    pub(crate) fn make(folder: &Path, what: &str, name: &str) -> Self {
        let path = |end: &str| folder.join(format!("{what}.{end}"));
        let (file, key, keystore) = (path("crt"), path("key"), path("p12"));
        openssl(
            Command::new(program("openssl", "openssl"))
                .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
                .args(["-nodes", "-days", "30", "-subj", "/CN=server"])
                .args(["-addext", &format!("subjectAltName={name}")])
                .args(["-addext", "basicConstraints=critical,CA:FALSE"])
                .args([Path::new("-out"), &file, Path::new("-keyout"), &key]),
        );
        openssl(
            Command::new(program("openssl", "openssl"))
                .args(["pkcs12", "-export", "-password", &format!("pass:{PASSWORD}")])
                .args([Path::new("-in"), &file, Path::new("-inkey"), &key])
                .args([Path::new("-out"), &keystore]),
        );
        Self { file, keystore }
    }

    /// An authority that has not signed this server's certificate.
    pub(crate) fn of_somebody_else(folder: &Path) -> Self {
        Self::make(folder, "else", "IP:127.0.0.1")
    }
}

fn openssl(command: &mut Command) {
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
