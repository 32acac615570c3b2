//! The one shared password, which every door requires in its protocol's own form.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A password is one line; a longer file is something else.
const BYTES_MAX: usize = 1_024;

/// The shared password. Its `Debug` output does not reveal it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<[u8]>);

impl Password {
    /// Reads the first line of a file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let bytes =
            fs::read(path).map_err(|error| format!("can't read the password {shown}: {error}"))?;
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
        Self::new(line)
            .map_err(|wrong| format!("the first line of {shown} is not a valid password: {wrong}"))
    }

    /// Takes the password from a string, without surrounding whitespace.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::new(text.trim().as_bytes()).map_err(|wrong| format!("no password: {wrong}"))
    }

    fn new(bytes: &[u8]) -> Result<Self, String> {
        match bytes.len() {
            0 => Err("it is empty".to_owned()),
            1..=BYTES_MAX => Ok(Self(Arc::from(bytes))),
            _ => Err(format!("it is longer than {BYTES_MAX} bytes")),
        }
    }

    /// Whether `sent` is the password. The comparison takes the same time however much of it was
    /// right.
    pub(crate) fn is(&self, sent: &[u8]) -> bool {
        let differing = self.0.iter().zip(sent).fold(0, |seen, (a, b)| seen | (a ^ b));
        differing == 0 && sent.len() == self.0.len()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_password_matches() {
        let password = Password(Arc::from(b"open sesame".as_slice()));
        assert!(password.is(b"open sesame"));
        for wrong in ["", "open", "open sesame!", "Open sesame"] {
            assert!(!password.is(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn password_is_the_first_line_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "open sesame\nthe rest\n").unwrap();
        assert!(Password::read(&file).unwrap().is(b"open sesame"));
        fs::write(&file, "\n").unwrap();
        assert!(Password::read(&file).unwrap_err().contains("is not a valid password"));
    }

    #[test]
    fn password_is_not_shown() {
        let password = Password(Arc::from(b"open sesame".as_slice()));
        assert!(!format!("{password:?}").contains("sesame"));
    }
}
