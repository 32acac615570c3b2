//! Client authentication: ZooKeeper's schemes `ip` and `digest`.

use crate::codec::AuthPacket;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::AuthId;
use sha1::{Digest as _, Sha1};
use std::net::IpAddr;

/// The most ids of one client: all of them are part of every change that it makes.
const IDS_MAX: usize = 16;

/// The id that every client has from the start: its address.
pub(crate) fn of_address(address: IpAddr) -> AuthId {
    AuthId { scheme: "ip".to_owned(), id: address.to_canonical().to_string() }
}

/// The id that a packet proves, for a client at `address`; `None` if the scheme is not known.
pub(crate) fn proven(packet: &AuthPacket, address: &AuthId) -> Option<AuthId> {
    let AuthPacket { scheme, auth } = packet;
    match scheme.as_str() {
        "digest" => {
            // Without a colon, all of it is the user name.
            let colon = auth.iter().position(|byte| *byte == b':').unwrap_or(auth.len());
            let user = std::str::from_utf8(auth.get(..colon)?).ok()?;
            Some(AuthId { scheme: scheme.clone(), id: digest_id(user, auth) })
        }
        "ip" => Some(address.clone()),
        _ => None,
    }
}

/// The user and the password in a packet of the scheme `digest`; `None` for other schemes.
pub(crate) fn user_and_password(packet: &AuthPacket) -> Option<(&str, &[u8])> {
    let AuthPacket { scheme, auth } = packet;
    if scheme != "digest" {
        return None;
    }
    // Without a colon, all of it is the user.
    let colon = auth.iter().position(|byte| *byte == b':').unwrap_or(auth.len());
    let (user, password) = auth.split_at(colon);
    Some((std::str::from_utf8(user).ok()?, password.get(1..).unwrap_or_default()))
}

/// The id of a user: its name, and the digest of `both`, its name and password.
fn digest_id(user: &str, both: &[u8]) -> String {
    format!("{user}:{}", STANDARD.encode(Sha1::digest(both)))
}

/// Adds an id unless the client has it already. Returns false if there are too many.
pub(crate) fn add(ids: &mut Vec<AuthId>, id: AuthId) -> bool {
    if ids.contains(&id) {
        return true;
    }
    if ids.len() >= IDS_MAX {
        return false;
    }
    ids.push(id);
    true
}

/// An id as `whoAmI` shows it: with the user name only.
pub(crate) fn user_of(id: &AuthId) -> AuthId {
    let user = match id.scheme.as_str() {
        "digest" => id.id.split(':').next().unwrap_or_default(),
        _ => &id.id,
    };
    AuthId { scheme: id.scheme.clone(), id: user.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_matches_zookeeper() {
        let packet = AuthPacket { scheme: "digest".to_owned(), auth: b"super:test".to_vec() };
        // From ZooKeeper's own documentation of `DigestAuthenticationProvider`.
        assert_eq!(
            proven(&packet, &of_address([127, 0, 0, 1].into())).unwrap().id,
            "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
        );
    }
}
