//! Tables for people: aligned, no wider than the terminal, in colour only on a terminal.

use crate::stderr;
use rustix::termios::tcgetwinsize;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Spaces between two columns.
const GAP: usize = 2;

/// Columns are not made narrower than this, however narrow the terminal is.
const COLUMN_MIN: usize = 4;

/// Marks text that was cut off.
const CUT: &str = "…";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Plain,
    Bold,
    Dim,
    Good,
    Warn,
    Bad,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    colour: Colour,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>, colour: Colour) -> Self {
        Self { text: clean(text.as_ref()), colour }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text.to_string(), Colour::Plain)
    }
}

/// Escapes control characters: names and notes are other people's text, and must not control the
/// terminal.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// A column's alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<(&'static str, Side)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A column whose heading begins with `>` is right-aligned.
    pub(crate) fn new(head: &[&'static str]) -> Self {
        let column = |name: &&'static str| match name.strip_prefix('>') {
            Some(name) => (name, Side::Right),
            None => (*name, Side::Left),
        };
        Self { head: head.iter().map(column).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Drops columns that have no text in any row.
    pub(crate) fn without_empty(mut self) -> Self {
        for at in (0..self.head.len()).rev() {
            let empty = |row: &Vec<Cell>| row.get(at).is_none_or(|cell| cell.text.is_empty());
            if self.rows.iter().all(empty) {
                self.head.remove(at);
                self.rows.iter_mut().filter(|row| at < row.len()).for_each(|row| {
                    row.remove(at);
                });
            }
        }
        self
    }

    /// Prints it no wider than the terminal; to a pipe, at its full width.
    pub(crate) fn print(&self) -> io::Result<()> {
        let out = io::stdout();
        let width = out.is_terminal().then(|| tcgetwinsize(&out).ok()).flatten();
        let width = width.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
        say(&self.text(width, colours()))
    }

    /// The whole table, with no line wider than `width` if possible. `None`: any width.
    pub(crate) fn text(&self, width: Option<usize>, colours: bool) -> String {
        let widths = self.widths(width);
        let head = self.head.iter().map(|(name, _)| Cell::new(name, Colour::Bold)).collect();
        let mut text = String::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), (_, side)) in row.iter().zip(&widths).zip(&self.head) {
                if !line.is_empty() {
                    line.push_str(&" ".repeat(GAP));
                }
                let shown = cut(&cell.text, *width);
                let room = " ".repeat(width.saturating_sub(shown.width()));
                let colour = if colours { cell.colour.code() } else { "" };
                let end = if colour.is_empty() { "" } else { "\x1b[0m" };
                let _ = match side {
                    Side::Left => write!(line, "{colour}{shown}{end}{room}"),
                    Side::Right => write!(line, "{room}{colour}{shown}{end}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// As wide as the contents of each column; the widest shrink until everything fits.
    fn widths(&self, room: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.head.iter().map(|(name, _)| name.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        let Some(room) = room else { return widths };
        let gaps = GAP * widths.len().saturating_sub(1);
        let mut over = (widths.iter().sum::<usize>() + gaps).saturating_sub(room);
        while over > 0 {
            let Some(widest) = widths.iter_mut().max() else { break };
            if *widest <= COLUMN_MIN {
                break;
            }
            *widest -= 1;
            over -= 1;
        }
        widths
    }
}

/// Cuts the text to `width` columns, and marks it if anything was cut off.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(CUT.width());
    let fits = |c: &char| {
        let wide = c.width().unwrap_or(0);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    };
    let kept: String = text.chars().take_while(fits).collect();
    kept + CUT
}

/// Whether output to stdout is coloured.
pub(crate) fn colours() -> bool {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    wanted && io::stdout().is_terminal()
}

/// The text in a colour, if output is coloured.
pub(crate) fn tint(text: &str, colour: Colour) -> String {
    let text = clean(text);
    match colour.code() {
        "" => text,
        code if colours() => format!("{code}{text}\x1b[0m"),
        _ => text,
    }
}

/// Writes to stdout. Exits if the reader has had enough, as in `holdfast ls | head`.
pub(crate) fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            stderr::flush();
            std::process::exit(0)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", ">TOKEN"]);
        table.row(["seat-12A".into(), 7.into()]);
        table.row(["locks/äöü/a-very-long-name".into(), Cell::new("12345", Colour::Warn)]);
        table
    }

    #[test]
    fn columns_are_aligned() {
        let shown = table().text(None, false);
        assert_eq!(
            shown,
            "NAME                        TOKEN\n\
             seat-12A                        7\n\
             locks/äöü/a-very-long-name  12345\n"
        );
    }

    #[test]
    fn widest_column_is_cut_first() {
        let shown = table().text(Some(20), false);
        assert_eq!(shown, "NAME           TOKEN\nseat-12A           7\nlocks/äöü/a-…  12345\n");
        assert!(shown.lines().all(|line| line.width() <= 20));
    }

    #[test]
    fn empty_columns_are_omitted() {
        let mut table = Table::new(&["A", "NOTE", "B"]);
        table.row(["1".into(), "".into(), "2".into()]);
        assert_eq!(table.without_empty().text(None, false), "A  B\n1  2\n");
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let shown = table().text(Some(20), true);
        assert!(shown.contains("locks/äöü/a-…  \x1b[33m12345\x1b[0m\n"), "{shown}");
    }

    #[test]
    fn control_characters_are_escaped() {
        let cell = Cell::from("\x1b[2Jgone\n\u{202e}x");
        assert_eq!(cell.text, "\\u{1b}[2Jgone\\n\\u{202e}x");
    }

    #[test]
    fn wide_characters_are_cut_at_cell_boundaries() {
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("日本語", 6), "日本語");
    }
}
