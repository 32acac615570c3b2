//! Pages of the documentation whose commands are run as written.

use std::path::{Path, PathBuf};

/// A fenced block of a Markdown page.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

/// The path of a page in `docs/`.
pub(crate) fn path(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)
}

pub(crate) fn read(page: &str) -> String {
    std::fs::read_to_string(path(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The fenced blocks of a page, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => block.text.extend([line, "\n"]),
            (None, Some(language)) => {
                open = Some(Block { language: language.to_owned(), text: String::new() });
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// Checks parts of a page between `<!-- generated: NAME -->` and `<!-- end of generated -->`, or
/// rewrites them if `UPDATE_DOCS` is set.
pub(crate) fn check_generated(page: &str, parts: &[(&str, &str)]) {
    const END: &str = "<!-- end of generated -->";
    let (mut text, mut differences) = (read(page), Vec::new());
    for (name, expected) in parts {
        let mark = format!("<!-- generated: {name} -->\n");
        let begin = text.find(&mark).unwrap_or_else(|| panic!("{page} has no {mark}")) + mark.len();
        let length = text[begin..].find(END).unwrap_or_else(|| panic!("{page} has no {END}"));
        if &text[begin..begin + length] != *expected {
            differences.push(format!("{name} should be:\n{expected}"));
        }
        text.replace_range(begin..begin + length, expected);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(path(page), text).unwrap();
    }
    let differences = differences.join("\n");
    assert!(differences.is_empty(), "run this with UPDATE_DOCS=1 to write {page}: {differences}");
}
