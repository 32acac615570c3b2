//! What the two drivers have in common: values, statements, transactions and what becomes of them.

use std::fmt;

/// A value of a statement or a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Text(String),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

pub(super) type Row = Vec<Value>;

/// A statement with its values, `$1` first.
pub(crate) struct Statement {
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
}

impl Statement {
    pub(super) fn new(sql: impl Into<String>, values: impl Into<Vec<Value>>) -> Self {
        Self { sql: sql.into(), values: values.into() }
    }
}

/// One transaction.
#[derive(Default)]
pub(crate) struct Transaction {
    /// The line that the database must have; `None` if it does not matter.
    pub(super) line: Option<String>,
    /// The resource and the token to show first; `None` if the lock has no token.
    pub(super) fence: Option<(String, u64)>,
    /// If one of these changes no row, nothing is changed at all.
    pub(super) guarded: Vec<Statement>,
    pub(super) then: Vec<Statement>,
}

impl Transaction {
    pub(super) fn of(guarded: impl Into<Vec<Statement>>) -> Self {
        Self { guarded: guarded.into(), ..Self::default() }
    }

    pub(super) fn then(self, then: Vec<Statement>) -> Self {
        Self { then, ..self }
    }
}

impl From<Statement> for Transaction {
    fn from(statement: Statement) -> Self {
        Self::of([statement])
    }
}

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    /// A later holder has shown its token; says both.
    Fenced(String),
    /// The row was not as expected.
    Unmatched,
    /// Other locks protect the tickets now: the database has another line.
    OtherLine,
}

/// The database is down, or does not do what it is told.
#[derive(Debug, Clone)]
pub(crate) enum StoreError {
    /// Nothing was changed.
    Unavailable(String),
    /// The answer to a commit was lost: it may have taken effect.
    Unknown(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => write!(f, "the database is unavailable: {why}"),
            Self::Unknown(why) => write!(f, "the database did not confirm the change: {why}"),
        }
    }
}

impl std::error::Error for StoreError {}
