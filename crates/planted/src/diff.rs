//! Diffs without line numbers, so that they survive changes elsewhere in a file.
//!
//! ```text
//! --- crates/core/src/lines/serve.rs
//!          let alive = session.is_alive();
//! +        let alive = alive || crate::planted::serve_the_dead();
//! @@
//! -        another.place(in_the, same_file);
//! +        another.place(changed);
//! ```
//!
//! A hunk's context and its removed lines must occur exactly once in the file.

/// Lines that are next to each other in one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Relative to the root of the workspace.
    pub(crate) file: String,
    /// Where the hunk begins in the diff, counted from 1.
    pub(crate) at_line: usize,
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Context(String),
    Removed(String),
    Added(String),
}

impl Hunk {
    /// The lines to look for.
    fn before(&self) -> Vec<&str> {
        let before = self.lines.iter().filter_map(|line| match line {
            Line::Context(text) | Line::Removed(text) => Some(text.as_str()),
            Line::Added(_) => None,
        });
        before.collect()
    }

    pub(crate) fn added(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            Line::Added(text) => Some(text.as_str()),
            Line::Context(_) | Line::Removed(_) => None,
        })
    }
}

/// Parses what follows the description: from the first `---` line on.
pub(crate) fn parse(text: &str) -> Result<Vec<Hunk>, String> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let numbered = text.lines().zip(1..).skip_while(|(line, _)| !line.starts_with("--- "));
    for (line, at_line) in numbered {
        if let Some(file) = line.strip_prefix("--- ") {
            hunks.push(Hunk { file: file.to_owned(), at_line, lines: Vec::new() });
            continue;
        }
        let Some(hunk) = hunks.last_mut() else { break };
        if line == "@@" {
            let file = hunk.file.clone();
            hunks.push(Hunk { file, at_line, lines: Vec::new() });
            continue;
        }
        hunk.lines.push(match line.split_at_checked(1) {
            None => Line::Context(String::new()),
            Some((" ", text)) => Line::Context(text.to_owned()),
            Some(("-", text)) => Line::Removed(text.to_owned()),
            Some(("+", text)) => Line::Added(text.to_owned()),
            Some(_) => return Err(format!("line {at_line} begins with none of ' ', '-', '+'")),
        });
    }
    // An empty line separates the files of a diff.
    for hunk in &mut hunks {
        while hunk.lines.pop_if(|line| *line == Line::Context(String::new())).is_some() {}
    }
    if hunks.is_empty() {
        return Err("no line names a file: expected `--- crates/...`".to_owned());
    }
    Ok(hunks)
}

/// Applies hunks to one file, each to the text before any of them. If several add lines at the same
/// place, they are added in the order of the hunks. The error has the position of each hunk that
/// can't be applied, and why.
pub(crate) fn apply(text: &str, hunks: &[&Hunk]) -> Result<String, Vec<(usize, String)>> {
    let before: Vec<&str> = text.lines().collect();
    let mut removed = vec![false; before.len()];
    let mut added_before = vec![Vec::new(); before.len() + 1];
    let mut problems = Vec::new();
    for (number, hunk) in hunks.iter().enumerate() {
        let mut at = match find(&before, &hunk.before()) {
            Ok(at) => at,
            Err(problem) => {
                problems.push((number, problem));
                continue;
            }
        };
        for line in &hunk.lines {
            match line {
                Line::Added(text) => added_before[at].push(text.as_str()),
                Line::Context(_) => at += 1,
                Line::Removed(_) => {
                    if std::mem::replace(&mut removed[at], true) {
                        let problem = format!("another mistake removes {:?} too", before[at]);
                        problems.push((number, problem));
                    }
                    at += 1;
                }
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut after = String::new();
    for (at, added) in added_before.iter().enumerate() {
        let kept = before.get(at).filter(|_| !removed[at]);
        for line in added.iter().chain(kept) {
            after.push_str(line);
            after.push('\n');
        }
    }
    Ok(after)
}

/// Where the lines start, if they occur exactly once.
fn find(text: &[&str], lines: &[&str]) -> Result<usize, String> {
    if lines.is_empty() {
        return Err("its hunk has no context".to_owned());
    }
    let places: Vec<usize> = text
        .windows(lines.len())
        .enumerate()
        .filter(|(_, window)| *window == lines)
        .map(|(at, _)| at)
        .collect();
    match places.as_slice() {
        [at] => Ok(*at),
        [] => Err(match lines.iter().find(|line| !text.contains(line)) {
            Some(line) => format!("`{}` is not there", line.trim()),
            None => "its lines are not there in this order".to_owned(),
        }),
        several => {
            let numbers: Vec<String> = several.iter().map(|at| (at + 1).to_string()).collect();
            Err(format!("its lines are there more than once, at lines {}", numbers.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "one\ntwo\nthree\ntwo\nfour\n";

    fn applied(diff: &str) -> Result<String, Vec<(usize, String)>> {
        let hunks = parse(diff).unwrap();
        apply(SOURCE, &hunks.iter().collect::<Vec<_>>())
    }

    #[test]
    fn lines_are_added_and_replaced() {
        let diff = "What it does.\n\n--- a.rs\n one\n+one and a half\n@@\n three\n-two\n+2\n\n";
        assert_eq!(applied(diff).unwrap(), "one\none and a half\ntwo\nthree\n2\nfour\n");
    }

    #[test]
    fn hunks_can_share_context_and_positions() {
        let diff = "--- a.rs\n one\n+a\n two\n@@\n one\n+b\n@@\n-one\n two\n three\n+c\n";
        assert_eq!(applied(diff).unwrap(), "a\nb\ntwo\nthree\nc\ntwo\nfour\n");
    }

    #[test]
    fn missing_or_ambiguous_lines_are_reported() {
        let problems =
            applied("--- a.rs\n five\n+a\n@@\n one\n four\n+a\n@@\n two\n+a\n").unwrap_err();
        let expected = [
            (0, "`five` is not there".to_owned()),
            (1, "its lines are not there in this order".to_owned()),
            (2, "its lines are there more than once, at lines 2, 4".to_owned()),
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn removing_a_line_twice_is_refused() {
        let problems = applied("--- a.rs\n-one\n@@\n-one\n+1\n").unwrap_err();
        assert_eq!(problems, [(1, "another mistake removes \"one\" too".to_owned())]);
    }

    #[test]
    fn hunk_without_context_is_refused() {
        let problems = applied("--- a.rs\n+a\n").unwrap_err();
        assert_eq!(problems, [(0, "its hunk has no context".to_owned())]);
    }

    #[test]
    fn bad_diffs_are_refused() {
        assert!(parse("only words\n").unwrap_err().contains("no line names a file"));
        assert!(parse("--- a.rs\n one\ntwo\n").unwrap_err().contains("line 3"));
    }
}
