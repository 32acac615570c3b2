//! Numbers as Redis and Lua parse and format them.

/// Parses an integer: no sign but a minus, no leading zero, no spaces.
pub(crate) fn integer(digits: &[u8]) -> Option<i64> {
    let (negative, rest) = match digits.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, digits),
    };
    let plain = match rest {
        [b'0'] => !negative,
        [b'1'..=b'9', more @ ..] => more.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if plain { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

/// Parses a floating-point number.
pub(crate) fn float(digits: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(digits).ok()?;
    let first = text.bytes().next()?;
    let last = text.bytes().last()?;
    if first.is_ascii_whitespace() || last.is_ascii_whitespace() {
        return None;
    }
    text.parse::<f64>().ok().filter(|number| !number.is_nan())
}

/// Formats like C's `%.<precision>g`.
pub(crate) fn general(number: f64, precision: usize) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let after_first = precision.saturating_sub(1);
    let scientific = format!("{number:.after_first$e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let wide = i32::try_from(precision).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= wide {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs());
    }
    let decimals = usize::try_from(wide.saturating_sub(1).saturating_sub(exponent)).unwrap_or(0);
    trimmed(&format!("{number:.decimals$}")).to_owned()
}

fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers() {
        for good in ["0", "1", "-1", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(integer(good.as_bytes()), good.parse().ok());
        }
        for bad in ["", "-", "-0", "00", "01", "+1", " 1", "1 ", "1.0", "x", "9223372036854775808"]
        {
            assert_eq!(integer(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn floats_are_formatted_like_c() {
        let cases = [
            (1.0, 14, "1"),
            (0.1, 14, "0.1"),
            (1e15, 14, "1e+15"),
            (1e20, 17, "1e+20"),
            (123456789012345678.0, 14, "1.2345678901235e+17"),
            (3.5, 17, "3.5"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
            (99999999999999.9, 14, "1e+14"),
            (-2.25, 14, "-2.25"),
            (-0.0, 14, "-0"),
        ];
        for (number, precision, text) in cases {
            assert_eq!(general(number, precision), text);
        }
    }
}
