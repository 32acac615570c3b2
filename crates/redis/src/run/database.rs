//! Databases: which names belong to which.

use crate::error::Error;
use holdfast_core::LockName;

/// A database. Database 0 has all names as they are; the others have a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Database(pub u8);

/// How many databases there are.
const DATABASES: u8 = 16;

impl Database {
    /// The prefix of every name in this database.
    pub fn prefix(self) -> String {
        if self.0 == 0 { String::new() } else { format!("redis-{}/", self.0) }
    }

    /// The lock name of a key.
    pub fn name(self, key: &[u8]) -> Result<LockName, Error> {
        let mut name = self.prefix().into_bytes();
        if key.is_empty() && !name.is_empty() {
            return LockName::parse([]).map_err(|bad| Error::bad_text("this key", bad));
        }
        name.extend_from_slice(key);
        LockName::parse(name).map_err(|bad| Error::bad_text("this key", bad))
    }

    /// The key of a name in this database; `None` if it belongs to another one.
    pub fn key(self, name: &LockName) -> Option<&[u8]> {
        let name = name.as_bytes();
        if self.0 > 0 {
            return name.strip_prefix(self.prefix().as_bytes()).filter(|key| !key.is_empty());
        }
        let others = name.starts_with(b"redis-")
            && (1..DATABASES).any(|other| name.starts_with(Self(other).prefix().as_bytes()));
        (!others).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_belongs_to_one_database() {
        let name = Database(3).name(b"a").unwrap();
        assert_eq!(name.as_bytes(), b"redis-3/a");
        assert_eq!(Database(3).key(&name), Some(&b"a"[..]));
        assert_eq!(Database(0).key(&name), None);
        assert_eq!(Database(1).key(&name), None);
        let name = Database(0).name(b"redis-33/a").unwrap();
        assert_eq!(Database(0).key(&name), Some(&b"redis-33/a"[..]));
        assert_eq!(Database(3).key(&name), None);
    }

    #[test]
    fn key_length_is_bounded() {
        for database in [Database(0), Database(15)] {
            let error = database.name(b"").unwrap_err().to_string();
            assert!(error.starts_with("ERR this key can't be used here: a lock name has 1"));
        }
        assert!(Database(0).name(&[b'x'; 512]).is_ok());
        assert!(Database(0).name(&[b'x'; 513]).is_err());
        assert!(Database(1).name(&[b'x'; 512]).is_err());
    }
}
