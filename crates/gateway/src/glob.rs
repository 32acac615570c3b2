//! Glob patterns, as in `KEYS user:*`.

/// Whether a text matches a pattern of `*`, `?`, `[a-z]`, `[^a]` and `\x`.
///
/// A star is tried again only at the last one passed, so the work is at most the product of the
/// two lengths.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut to) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at, to));
                Some((at + 1, to))
            }
            Some(_) => match text.get(to) {
                Some(byte) => one(pattern, at, *byte).map(|next| (next, to + 1)),
                None => None,
            },
            None if to == text.len() => return true,
            None => None,
        };
        (at, to) = match (step, retry) {
            (Some(next), _) => next,
            (None, Some((star, from))) if from < text.len() => {
                retry = Some((star, from + 1));
                (star + 1, from + 1)
            }
            (None, _) => return false,
        };
    }
}

/// Matches one byte against the pattern at `at`, and returns where the pattern continues.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => class(pattern, at + 1, byte),
        b'\\' => match pattern.get(at + 1) {
            Some(literal) => (*literal == byte).then_some(at + 2),
            None => (byte == b'\\').then_some(at + 1),
        },
        literal => (*literal == byte).then_some(at + 1),
    }
}

fn class(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match (pattern.get(at), pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'\\'), Some(literal), _) => {
                found |= *literal == byte;
                at += 2;
            }
            (Some(b']'), _, _) => {
                at += 1;
                break;
            }
            // An unterminated class extends to the end of the pattern.
            (None, _, _) => break,
            (Some(from), Some(b'-'), Some(until)) => {
                let (low, high) = if from <= until { (from, until) } else { (until, from) };
                found |= (*low..=*high).contains(&byte);
                at += 3;
            }
            (Some(literal), _, _) => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        let yes = [
            ("", ""),
            ("*", ""),
            ("*", "abc"),
            ("h?llo", "hello"),
            ("h*llo", "hllo"),
            ("h*l*o", "hello world, o"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[c-a]llo", "hbllo"),
            ("\\*", "*"),
            ("a[\\]]b", "a]b"),
            ("*a*b*c*", "xaxbxcx"),
            ("[abc", "b"),
        ];
        let no = [("", "a"), ("a", ""), ("h?llo", "hllo"), ("h[^e]llo", "hello"), ("a*b", "abc")];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_stay_cheap() {
        let pattern = "*a".repeat(200) + "b";
        let text = "a".repeat(5_000);
        assert!(!matches(pattern.as_bytes(), text.as_bytes()));
    }
}
