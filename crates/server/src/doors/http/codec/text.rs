//! Bytes as JSON strings and back: whatever is shown can be sent.
//!
//! Valid UTF-8 is unchanged. A byte that is not UTF-8 is written as U+FFFD, the replacement
//! character, followed by its two hexadecimal digits: `caf\xE9` is `caf\u{FFFD}e9`. If the bytes
//! contain U+FFFD itself, its three bytes are written that way. Nothing else is ever changed.

use std::fmt::Write;

const MARK: char = char::REPLACEMENT_CHARACTER;

/// Converts bytes to text.
pub(crate) fn show(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char == MARK {
                mark(char.encode_utf8(&mut [0; 4]).as_bytes(), &mut shown);
            } else {
                shown.push(char);
            }
        }
        mark(chunk.invalid(), &mut shown);
    }
    shown
}

fn mark(bytes: &[u8], shown: &mut String) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(shown, "{MARK}{byte:02x}");
    }
}

/// Converts text back to bytes. A mark that is not followed by two such digits stands for itself.
pub(crate) fn read(text: &str) -> Vec<u8> {
    let mut pieces = text.split(MARK);
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        match marked(piece) {
            Some((byte, rest)) => {
                bytes.push(byte);
                bytes.extend_from_slice(rest.as_bytes());
            }
            None => {
                bytes.extend_from_slice(MARK.encode_utf8(&mut [0; 4]).as_bytes());
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    bytes
}

/// The byte that the first two digits encode; below 128 it would have been plain text.
fn marked(piece: &str) -> Option<(u8, &str)> {
    let (digits, rest) = piece.split_at_checked(2)?;
    let byte = u8::from_str_radix(digits, 16).ok()?;
    (byte >= 0x80).then_some((byte, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn non_utf8_text_is_marked() {
        assert_eq!(show(b"seat-12A"), "seat-12A");
        assert_eq!(show(b"caf\xe9"), "caf\u{fffd}e9");
        assert_eq!(read("caf\u{fffd}E9!"), b"caf\xe9!");
        assert_eq!(show("\u{fffd}".as_bytes()), "\u{fffd}ef\u{fffd}bf\u{fffd}bd");
    }

    #[test]
    fn literal_mark_is_kept() {
        for text in ["\u{fffd}", "\u{fffd}e", "\u{fffd}41", "\u{fffd}+9", "\u{fffd}\u{e9}9"] {
            assert_eq!(read(text), text.as_bytes(), "{text}");
        }
    }

    proptest! {
        /// Fails if two names were shown alike, or one came back as another.
        #[test]
        fn shown_text_can_be_sent_back(bytes: Vec<u8>) {
            prop_assert_eq!(read(&show(&bytes)), bytes);
        }

        #[test]
        fn marks_between_other_bytes_survive(
            parts in prop::collection::vec(prop_oneof![
                Just(b"\xef\xbf\xbd".to_vec()), Just(b"e9".to_vec()), Just(b"\xef\xbf".to_vec()),
                Just("\u{e9}".into()), any::<Vec<u8>>(),
            ], 0..8),
        ) {
            let bytes = parts.concat();
            prop_assert_eq!(read(&show(&bytes)), bytes);
        }

        #[test]
        fn plain_text_is_unchanged(text in "[^\u{fffd}]*") {
            prop_assert_eq!(show(text.as_bytes()), text.clone());
            prop_assert_eq!(read(&text), text.as_bytes());
        }
    }
}
