//! TLS, with the same options as kazoo.

use crate::error::Error;
use crate::url::EngineUrl;
use zookeeper_client::{Error as ZkError, TlsOptions};

/// `None` without TLS.
pub(super) fn options(url: &EngineUrl) -> Result<Option<TlsOptions>, Error> {
    let files = ["ca", "certfile", "keyfile"].map(|option| url.option(option));
    match url.option("use_ssl") {
        Some("true" | "True" | "1") => {}
        None | Some("false" | "False" | "0") if files == [None; 3] => return Ok(None),
        None | Some("false" | "False" | "0") => {
            return Err(Error::BadUrl("certificates go with `use_ssl=true`".to_owned()));
        }
        Some(other) => {
            return Err(Error::BadUrl(format!("`use_ssl={other}` is neither `true` nor `false`")));
        }
    }
    // A process has one provider; one that was installed earlier will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let [ca, certificate, key] = files;
    let Some(ca) = ca else {
        let why = "`use_ssl=true` needs `ca=FILE`: the authority of the server's certificate (PEM)";
        return Err(Error::BadUrl(why.to_owned()));
    };
    let options = TlsOptions::new();
    let options = options.with_pem_ca(&read("ca", ca)?).map_err(|error| bad("ca", ca, &error))?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let (chain, private) = (read("certfile", certificate)?, read("keyfile", key)?);
            let options = options.with_pem_identity(&chain, &private);
            options.map(Some).map_err(|error| bad("certfile", certificate, &error))
        }
        (None, None) => Ok(Some(options)),
        _ => Err(Error::BadUrl("`certfile` and `keyfile` go together".to_owned())),
    }
}

fn read(option: &str, file: &str) -> Result<String, Error> {
    std::fs::read_to_string(file)
        .map_err(|error| Error::BadUrl(format!("`{option}={file}`: {error}")))
}

fn bad(option: &str, file: &str, error: &ZkError) -> Error {
    Error::BadUrl(format!("`{option}={file}`: {error}"))
}
