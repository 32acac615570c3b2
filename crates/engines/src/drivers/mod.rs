//! One folder per engine, all with the same parts: `mod.rs` (connect, promises, names), `acquire.rs`
//! (take and wait), `hold.rs` (extend, release, check), `inspect.rs`.

mod memory;

use crate::driver::Driver;
use crate::error::Error;
use crate::url::EngineUrl;
use std::sync::Arc;
use std::time::Duration;

/// Connects to the engine that the URL names.
pub(crate) async fn connect(url: &EngineUrl, timeout: Duration) -> Result<Arc<dyn Driver>, Error> {
    let _ = timeout;
    match url.scheme.as_str() {
        "memory" => memory::connect(url),
        scheme => {
            Err(Error::BadUrl(format!("unknown scheme `{scheme}` (known: {})", SCHEMES.join(", "))))
        }
    }
}

/// All schemes, for the error.
const SCHEMES: &[&str] = &["memory:"];
