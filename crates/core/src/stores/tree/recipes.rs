//! Which names are places in a line.
//!
//! The libraries' recipes sort the children of a directory by the number at the end of their names,
//! and recognise their own children by a marker in front of it. A marker that also ends common
//! words (`lock-`, `latch-`, `n-`) must be the whole name, or follow the prefix that Curator adds
//! to find its znodes again.

use crate::command::Mode;
use crate::ids::Token;
use crate::tree::Recipe;

/// `_c_`, a UUID, `-`.
const PROTECTION_LEN: usize = 40;

/// The recipe of a name without its number, and the mode of its ticket.
pub(super) fn place_of(prefix: &str) -> Option<(Recipe, Mode)> {
    let recipes = [
        ("__rlock__", Recipe::Kazoo, Mode::Shared),
        ("__lock__", Recipe::Kazoo, Mode::Exclusive),
        ("__READ__", Recipe::ReadWrite, Mode::Shared),
        ("__WRIT__", Recipe::ReadWrite, Mode::Exclusive),
    ];
    let marked = recipes.into_iter().find(|(marker, ..)| prefix.ends_with(marker));
    if let Some((_, recipe, mode)) = marked {
        return Some((recipe, mode));
    }
    match unprotected(prefix) {
        "lock-" => Some((Recipe::Mutex, Mode::Exclusive)),
        "latch-" => Some((Recipe::Latch, Mode::Exclusive)),
        "n-" => Some((Recipe::Plain, Mode::Exclusive)),
        _ => None,
    }
}

/// The name without the prefix by which a client finds its znode again.
fn unprotected(name: &str) -> &str {
    let protected = name.starts_with("_c_") || name.starts_with(FOREIGN);
    match name.split_at_checked(PROTECTION_LEN) {
        Some((prefix, rest)) if protected && prefix.ends_with('-') => rest,
        _ => name,
    }
}

/// The recipe of a name with its number.
pub(super) fn recipe_of(name: &str) -> Option<Recipe> {
    let prefix = name.get(..name.len().checked_sub(SUFFIX_LEN)?)?;
    place_of(prefix).map(|(recipe, _)| recipe)
}

/// The number in the name of a reader of Curator's read/write lock.
pub(super) fn joined_number(name: &str) -> Option<&str> {
    let (_, number) = name.rsplit_once("__READ__")?;
    (number.len() == SUFFIX_LEN).then_some(number)
}

/// The number in the name of a writer of Curator's read/write lock.
pub(super) fn writer_number(name: &str) -> Option<&str> {
    let (_, number) = name.rsplit_once("__WRIT__")?;
    (number.len() == SUFFIX_LEN).then_some(number)
}

/// The number of digits at the end of a name.
const SUFFIX_LEN: usize = 10;

/// The number at the end of a sequential znode's name, as ZooKeeper writes it.
pub(super) fn suffix(number: i32) -> String {
    format!("{number:010}")
}

/// The prefix of the names of tickets from other doors. Together with the token it is as long as
/// Curator's own prefix.
const FOREIGN: &str = "holdfast-ticket-";

/// Whether a name is reserved for tickets from other doors.
pub(super) fn is_foreign(name: &str) -> bool {
    name.starts_with(FOREIGN)
}

/// The name of a ticket from another door, in the form of a recipe: always an exclusive one, for
/// which every contender waits.
pub(super) fn foreign_name(recipe: Recipe, token: Token, number: i32) -> String {
    let marker = recipe.marker();
    let token = token.0;
    format!("{FOREIGN}{token:023}-{marker}{}", suffix(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_library_markers_are_recognised() {
        let exclusive = |recipe| Some((recipe, Mode::Exclusive));
        let shared = |recipe| Some((recipe, Mode::Shared));
        let uuid = "_c_6ac9d6a7-9b4f-4e7d-a2b7-7f4d8f2f7a11-";
        for (name, expected) in [
            ("0f1e2d__lock__".to_owned(), exclusive(Recipe::Kazoo)),
            ("0f1e2d__rlock__".to_owned(), shared(Recipe::Kazoo)),
            (format!("{uuid}lock-"), exclusive(Recipe::Mutex)),
            ("lock-".to_owned(), exclusive(Recipe::Mutex)),
            (format!("{uuid}latch-"), exclusive(Recipe::Latch)),
            (format!("{uuid}__READ__"), shared(Recipe::ReadWrite)),
            (format!("{uuid}__WRIT__"), exclusive(Recipe::ReadWrite)),
            ("n-".to_owned(), exclusive(Recipe::Plain)),
            // Words that merely end like a marker.
            ("clock-".to_owned(), None),
            ("election-".to_owned(), None),
            ("lock".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(place_of(&name), expected, "{name}");
        }
    }

    #[test]
    fn foreign_tickets_get_names_in_the_recipes_format() {
        for recipe in
            [Recipe::Kazoo, Recipe::Mutex, Recipe::ReadWrite, Recipe::Latch, Recipe::Plain]
        {
            let name = foreign_name(recipe, Token(u64::MAX), 17);
            assert!(name.ends_with("0000000017"), "{name}");
            assert_eq!(recipe_of(&name), Some(recipe), "{name}");
        }
    }
}
