//! Wall-clock times for people, in UTC.

/// Milliseconds since 1970 as `2026-11-16 05:41:12`.
pub(crate) fn show(ms: u64) -> String {
    let s = ms / 1_000;
    let (year, month, day) = date(s / 86_400);
    let (hour, minute, second) = (s / 3_600 % 24, s / 60 % 60, s % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Only the time of day.
pub(crate) fn time(ms: u64) -> String {
    show(ms).split_off(show(ms).len() - 8)
}

/// The date `days` days after 1970-01-01, computed in years that begin in March, so that the leap
/// day is the last of its year.
pub(crate) fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_computed_correctly() {
        assert_eq!(show(0), "1970-01-01 00:00:00");
        assert_eq!(show(951_782_399_000), "2000-02-28 23:59:59");
        assert_eq!(show(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(show(1_794_807_672_999), "2026-11-16 05:41:12");
        assert_eq!(time(1_794_807_672_999), "05:41:12");
    }
}
