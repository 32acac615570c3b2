//! Durations as people write them: 15s, 500ms, 2m, 1h, 1d.

use holdfast_play::duration_ms;
use std::time::Duration;

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    duration_ms(text).map(Duration::from_millis)
}

/// For a table: the two largest units at most.
pub(crate) fn show(ms: u64) -> String {
    let s = ms / 1_000;
    match (s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, _) if ms < 1_000 => format!("{ms}ms"),
        (0, 0, 0, _) if ms < 10_000 => format!("{}.{}s", s, ms % 1_000 / 100),
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m{s:02}s"),
        (0, h, m, _) => format!("{h}h{m:02}m"),
        (d, h, ..) => format!("{d}d{h:02}h"),
    }
}

/// In milliseconds, saturating.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_durations_are_quoted() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("1h"), Ok(Duration::from_secs(3_600)));
        for wrong in ["15", "", "s", "-1s", "1.5s", "15 s", "15sec", "99999999999999999d"] {
            let said = parse(wrong).unwrap_err();
            assert!(said.contains(&format!("`{wrong}`")) && said.contains("15s"), "{said}");
        }
    }

    #[test]
    fn durations_are_shown_in_two_units() {
        let shown = [7, 1_250, 59_999, 61_000, 3_720_000, 90_000_000].map(show);
        assert_eq!(shown, ["7ms", "1.2s", "59s", "1m01s", "1h02m", "1d01h"]);
    }
}
