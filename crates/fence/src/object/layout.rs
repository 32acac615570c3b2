//! Which layout a store has: decided once, by the first process that opens it, and kept in the
//! store.
//!
//! What a store supports can change: if an S3-compatible store gains `If-Match` in an update, the
//! next process to open it would look for the tokens where the other layout keeps them, and find
//! none. So the layout is written to the object `holdfast-fence-layout`, which is created only if
//! it is missing, before any token is. A store that was used before this object existed is
//! recognised by what is stored for a resource, see [`other_layout`].

use super::name::LAYOUT;
use super::put::{Put, put, unavailable};
use super::{Layout, PROBES_MAX};
use crate::Error;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode};
use std::sync::Arc;

const CONDITIONAL: &str = "holdfast-fence/1 layout=conditional\n";
const VERSIONED: &str = "holdfast-fence/1 layout=versioned\n";

/// The store's layout, given the best one that it supports.
pub(super) async fn agree(
    store: &Arc<dyn ObjectStore>,
    supported: Layout,
) -> Result<Layout, Error> {
    let path = Path::from(LAYOUT);
    for _ in 0..PROBES_MAX {
        match store.get(&path).await {
            Ok(got) => {
                let text = got.bytes().await.map_err(|error| unavailable(store, error))?;
                return decided(store, supported, &text);
            }
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(unavailable(store, error)),
        }
        let text = match supported {
            Layout::Conditional => CONDITIONAL,
            Layout::Versioned => VERSIONED,
        };
        match put(store, &path, text.into(), PutMode::Create).await {
            Put::Done(_) => return Ok(supported),
            // Another process was faster, or the reply was lost: look again.
            Put::Uncertainty(_) => {}
            Put::Unsupported(reason) => {
                return Err(Error::Unsupported { store: store.to_string(), reason });
            }
            Put::Failed(error) => return Err(unavailable(store, error)),
        }
    }
    Err(Error::Unavailable {
        store: store.to_string(),
        source: format!("its replies are lost too often to create {LAYOUT:?}").into(),
    })
}

fn decided(store: &Arc<dyn ObjectStore>, supported: Layout, text: &[u8]) -> Result<Layout, Error> {
    // A store that can replace on a condition can also create on one.
    let layout = if text == VERSIONED.as_bytes() {
        Layout::Versioned
    } else if text == CONDITIONAL.as_bytes() {
        Layout::Conditional
    } else {
        return Err(Error::Damaged {
            resource: LAYOUT.into(),
            reason: "it does not name a layout that this version knows".into(),
        });
    };
    if (layout, supported) == (Layout::Conditional, Layout::Versioned) {
        let reason = "its tokens were written with conditional replacements (If-Match), which it no \
                      longer supports";
        return Err(Error::Unsupported { store: store.to_string(), reason: reason.into() });
    }
    Ok(layout)
}

/// The error for a resource whose tokens are kept in the other layout.
pub(super) fn other_layout(store: &Arc<dyn ObjectStore>, resource: &str, other: Layout) -> Error {
    let (kept, layout) = match other {
        Layout::Conditional => ("as a single object", CONDITIONAL),
        Layout::Versioned => ("in numbered versions", VERSIONED),
    };
    Error::Unsupported {
        store: store.to_string(),
        reason: format!(
            "the tokens of {resource:?} are kept {kept}, which is not the layout of this store. If all \
             of its resources are, put {:?} and a line feed into its object {LAYOUT:?}",
            layout.trim_end()
        ),
    }
}
