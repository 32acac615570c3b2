//! Where a resource is stored. No two resources share an object, and no object is inside the folder
//! of another's versions.
//!
//! Most names are their own path. What a path can't express is percent-encoded: `%` itself, control
//! characters and backslashes, slashes at either end or next to another, the segments `.` and `..`,
//! segments of 20 digits, which would look like a version, and the name of the layout's object.

use crate::Error;
use object_store::path::Path;

/// Decimal digits of the highest `u64`: the length of a version's name.
pub(super) const DIGITS: usize = 20;
/// S3, GCS and Azure allow 1024 bytes; a version's number takes 21 of them.
const PATH_BYTES_MAX: usize = 1_000;
/// The longest file name on common file systems.
const FILE_NAME_BYTES_MAX: usize = 255;

/// The object that records which layout the store has. No resource is stored there.
pub(super) const LAYOUT: &str = "holdfast-fence-layout";

/// The object of a resource.
pub(super) fn path_of(resource: &str) -> Result<Path, Error> {
    let invalid = |reason| Error::InvalidResource { resource: resource.into(), reason };
    let encoded = encode(resource);
    if encoded.len() > PATH_BYTES_MAX {
        return Err(invalid(format!(
            "as an object's path it has {} bytes, the longest has {PATH_BYTES_MAX}",
            encoded.len()
        )));
    }
    Path::parse(&encoded).map_err(|error| invalid(error.to_string()))
}

/// The folder of a resource's versions, on a file system.
pub(super) fn folder_of(resource: &str) -> Result<Path, Error> {
    let folder = path_of(resource)?;
    let too_long = folder.parts().any(|part| part.as_ref().len() > FILE_NAME_BYTES_MAX);
    if too_long {
        let reason = format!(
            "a part between slashes has more than {FILE_NAME_BYTES_MAX} bytes, the longest a file \
             system allows"
        );
        return Err(Error::InvalidResource { resource: resource.into(), reason });
    }
    Ok(folder)
}

/// One of a resource's versions.
pub(super) fn path_of_version(resource: &str, number: u64) -> Result<Path, Error> {
    Ok(folder_of(resource)?.join(format!("{number:0DIGITS$}")))
}

/// The number of a version by its file name.
pub(super) fn version_number(file_name: &str) -> Option<u64> {
    if is_version(file_name) { file_name.parse().ok() } else { None }
}

fn is_version(segment: &str) -> bool {
    segment.len() == DIGITS && segment.bytes().all(|byte| byte.is_ascii_digit())
}

fn encode(resource: &str) -> String {
    let mut encoded = String::with_capacity(resource.len());
    let segments: Vec<&str> = resource.split('/').collect();
    for (index, segment) in segments.iter().enumerate() {
        if index > 0 {
            // A path has no empty segments, so a slash next to one is part of a name.
            let beside_empty = segments[index - 1].is_empty() || segment.is_empty();
            encoded.push_str(if beside_empty { "%2F" } else { "/" });
        }
        let reserved = index == 0 && *segment == LAYOUT;
        let encode_first = reserved || matches!(*segment, "." | "..") || is_version(segment);
        for (at, character) in segment.char_indices() {
            let plain = !(character == '%' || character == '\\' || character.is_ascii_control());
            if plain && !(encode_first && at == 0) {
                encoded.push(character);
            } else {
                // Only ASCII gets here.
                encoded.push_str(&format!("%{:02X}", u32::from(character)));
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_are_their_own_paths() {
        for name in ["ledger", "reports/7.txt", "a b/ü", "movie/00001.mp4", ".hidden", "a..b"] {
            assert_eq!(path_of(name).unwrap().as_ref(), name);
        }
    }

    #[test]
    fn names_that_are_not_paths_are_encoded() {
        for (name, path) in [
            ("/a", "%2Fa"),
            ("a/", "a%2F"),
            ("a//b", "a%2F%2Fb"),
            ("/", "%2F"),
            ("../b", "%2E./b"),
            (".", "%2E"),
            ("50%", "50%25"),
            ("a\nb", "a%0Ab"),
            ("a/00000000000000000001", "a/%300000000000000000001"),
            ("a/0000000000000000001", "a/0000000000000000001"),
            ("holdfast-fence-layout", "%68oldfast-fence-layout"),
            ("holdfast-fence-layout/a", "%68oldfast-fence-layout/a"),
            ("a/holdfast-fence-layout", "a/holdfast-fence-layout"),
        ] {
            assert_eq!(path_of(name).unwrap().as_ref(), path, "{name:?}");
        }
    }

    #[test]
    fn names_that_do_not_fit_are_refused() {
        assert!(path_of(&"%".repeat(400)).is_err());
        assert!(path_of_version(&"x".repeat(255), 1).is_ok());
        assert!(path_of_version(&"x".repeat(256), 1).is_err());
    }

    /// Few characters, so that names are often nearly the same.
    fn name() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            Just("/"),
            Just("."),
            Just("a"),
            Just("%"),
            Just("%2F"),
            Just("%30"),
            Just("0000000000000000001"),
            Just("0"),
            Just("\\"),
            Just("\n"),
        ];
        prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]
        #[test]
        fn no_two_names_share_a_path(one in name(), other in name()) {
            prop_assume!(one != other);
            let (at_one, at_other) = (path_of(&one).unwrap(), path_of(&other).unwrap());
            prop_assert_ne!(&at_one, &at_other);
            // Nor is one's version at, or above, the other.
            let version = path_of_version(&one, 1).unwrap();
            prop_assert!(!at_other.prefix_matches(&version), "{} is inside {}", at_other, version);
        }

        #[test]
        fn every_name_has_a_path(name in "[^\0]{1,80}") {
            prop_assert!(path_of(&name).is_ok());
        }
    }
}
