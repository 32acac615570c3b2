//! Normalizes Lua source for comparison: without spaces and comments, with one kind of quotes, and
//! with canonical names for local variables.

use std::collections::HashMap;

/// Longer scripts are not known ones.
const TEXT_BYTES_MAX: usize = 2_048;

/// The tokens of a script; `None` if it has something that no known script has.
pub(super) fn words(text: &[u8]) -> Option<Vec<String>> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = if first.is_ascii_whitespace() || first == ';' {
            &rest[1..]
        } else if let Some(comment) = rest.strip_prefix("--") {
            if comment.starts_with("[[") || comment.starts_with("[=") {
                return None;
            }
            comment.split_once('\n').map_or("", |(_, next)| next)
        } else if first == '"' || first == '\'' {
            let (inside, next) = rest[1..].split_once(first)?;
            if inside.contains('\\') || inside.contains('\n') {
                return None;
            }
            // Commands may be written in any case; a known script has no other string literals.
            words.push(format!("\"{}\"", inside.to_ascii_lowercase()));
            next
        } else if first.is_ascii_alphanumeric() || first == '_' {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            words.push(rest[..end].to_owned());
            &rest[end..]
        } else if first.is_ascii_punctuation() {
            let len = if ["==", "~=", "<=", ">=", ".."].iter().any(|op| rest.starts_with(op)) {
                2
            } else {
                1
            };
            words.push(rest[..len].to_owned());
            &rest[len..]
        } else {
            return None;
        };
    }
    Some(renamed(words))
}

/// Renames local variables by the order of their declaration.
fn renamed(words: Vec<String>) -> Vec<String> {
    let mut names: HashMap<String, String> = HashMap::new();
    let mut after_local = false;
    let mut renamed = Vec::with_capacity(words.len());
    for word in words {
        if after_local {
            let next = format!("local{}", names.len());
            names.insert(word.clone(), next);
        }
        after_local = word == "local";
        renamed.push(names.get(&word).cloned().unwrap_or(word));
    }
    renamed
}
