//! Access control of znodes: the ZooKeeper schemes `world`, `auth`, `digest` and `ip`.

use crate::tree::{Acl, AuthId, NodeRefusal, perms};
use std::net::IpAddr;
use std::sync::Arc;

/// The most entries of one list. ZooKeeper has no limit of its own; this is more than anyone needs.
const ACL_LEN_MAX: usize = 64;

/// Whether one of these ids has the permissions.
pub fn is_allowed(acl: &[Acl], wanted: u32, ids: &[AuthId]) -> bool {
    acl.is_empty()
        || acl.iter().filter(|entry| entry.perms & wanted != 0).any(|entry| {
            let AuthId { scheme, id } = &entry.id;
            (scheme == "world" && id == "anyone")
                || ids.iter().any(|who| who.scheme == *scheme && matches(scheme, &who.id, id))
        })
}

fn matches(scheme: &str, who: &str, entry: &str) -> bool {
    match scheme {
        "digest" => who == entry,
        "ip" => match (who.parse::<IpAddr>(), network(entry)) {
            (Ok(who), Some((network, bits))) => within(who, network, bits),
            _ => false,
        },
        _ => false,
    }
}

/// Parses an address with an optional prefix length, as in `10.0.0.0/8`. Returns how many of the
/// address's leading bits count.
fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(all), |bits| bits.parse().ok())?;
    (bits <= all).then_some((address, bits))
}

fn within(who: IpAddr, network: IpAddr, bits: u32) -> bool {
    let same = |one: u128, other: u128, width: u32| {
        let shift = width.saturating_sub(bits);
        one.checked_shr(shift).unwrap_or(0) == other.checked_shr(shift).unwrap_or(0)
    };
    match (who, network) {
        (IpAddr::V4(who), IpAddr::V4(network)) => {
            same(u128::from(u32::from(who)), u128::from(u32::from(network)), 32)
        }
        (IpAddr::V6(who), IpAddr::V6(network)) => same(u128::from(who), u128::from(network), 128),
        _ => false,
    }
}

/// The list as it is stored: `auth` is replaced by the ids that the client has proved.
pub(super) fn resolve(acl: &[Acl], ids: &[AuthId]) -> Result<Arc<[Acl]>, NodeRefusal> {
    if acl.is_empty() || acl.len() > ACL_LEN_MAX {
        return Err(NodeRefusal::InvalidAcl);
    }
    let mut kept: Vec<Acl> = Vec::new();
    let mut keep = |entry: Acl| {
        if !kept.contains(&entry) {
            kept.push(entry);
        }
    };
    for entry in acl {
        let AuthId { scheme, id } = &entry.id;
        match scheme.as_str() {
            "world" if id == "anyone" => keep(entry.clone()),
            "auth" => {
                let mut shown = ids.iter().filter(|who| who.scheme == "digest").peekable();
                if shown.peek().is_none() {
                    return Err(NodeRefusal::InvalidAcl);
                }
                shown.for_each(|who| keep(Acl { perms: entry.perms, id: who.clone() }));
            }
            "digest" if id.split(':').count() == 2 => keep(entry.clone()),
            "ip" if network(id).is_some() => keep(entry.clone()),
            _ => return Err(NodeRefusal::InvalidAcl),
        }
    }
    Ok(kept.into())
}

/// The list as shown to a client: password hashes are hidden unless the client may set the list.
pub fn shown_acl(acl: &[Acl], ids: &[AuthId]) -> Vec<Acl> {
    let may_set = is_allowed(acl, perms::ADMIN, ids);
    let masked = |entry: &Acl| {
        let mut entry = entry.clone();
        if !may_set && entry.id.scheme == "digest" {
            let user = entry.id.id.split(':').next().unwrap_or_default();
            entry.id.id = format!("{user}:x");
        }
        entry
    };
    acl.iter().map(masked).collect()
}
