//! Tables and figures as text.

use std::fmt::Write;

/// A Markdown table with aligned columns. The first `words` columns are left-aligned.
pub(crate) fn layout(lines: &[Vec<String>], words: usize) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |at: usize| {
        let cells = lines.iter().filter_map(|line| line.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = if at < words {
                write!(text, "| {cell:<width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
        }
        text += "|\n";
        if number == 0 {
            for (at, width) in widths.iter().enumerate() {
                let colon = if at < words { "-" } else { ":" };
                let _ = write!(text, "| {}{colon} ", "-".repeat(width.saturating_sub(1)));
            }
            text += "|\n";
        }
    }
    text
}

/// `1 client`, `2 clients`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

/// With as many digits as are meaningful.
pub(crate) fn plain(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// A ratio.
pub(crate) fn times(value: f64) -> String {
    format!("{}x", plain(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(1, "client"), "1 client");
        assert_eq!(counted(16, "client"), "16 clients");
    }

    #[test]
    fn figures_are_rounded_to_significant_digits() {
        assert_eq!(plain(0.0), "0");
        assert_eq!(plain(0.0521), "0.0521");
        assert_eq!(plain(0.521), "0.52");
        assert_eq!(plain(12.34), "12.3");
        assert_eq!(plain(1234.5), "1234");
    }
}
