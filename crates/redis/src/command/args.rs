//! Parses arguments; errors are worded as in Redis.

use crate::error::Error;
use crate::number;
use bytes::Bytes;

/// Whether an argument is this word, ignoring case.
pub(crate) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Parses an integer.
pub(crate) fn integer(argument: &[u8]) -> Result<i64, Error> {
    number::integer(argument).ok_or(Error::NOT_AN_INTEGER)
}

/// The next argument of an option.
pub(crate) fn next<'a>(rest: &mut std::slice::Iter<'a, Bytes>) -> Result<&'a Bytes, Error> {
    rest.next().ok_or(Error::SYNTAX)
}

/// Splits arguments into pairs of key and value.
pub(crate) fn pairs(arguments: &[Bytes], command: &str) -> Result<Vec<(Bytes, Bytes)>, Error> {
    let (pairs, rest) = arguments.as_chunks::<2>();
    if !rest.is_empty() || pairs.is_empty() {
        return Err(Error::arity(command));
    }
    Ok(pairs.iter().map(|[key, value]| (key.clone(), value.clone())).collect())
}

/// The arguments, if there are exactly `N`, which the command's arity ensures.
pub(crate) fn exactly<'a, const N: usize>(
    arguments: &'a [Bytes],
    command: &str,
) -> Result<&'a [Bytes; N], Error> {
    arguments.try_into().map_err(|_| Error::arity(command))
}

/// Splits off the first argument.
pub(crate) fn first<'a>(
    arguments: &'a [Bytes],
    command: &str,
) -> Result<(&'a Bytes, &'a [Bytes]), Error> {
    arguments.split_first().ok_or_else(|| Error::arity(command))
}
