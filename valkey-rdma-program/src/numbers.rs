//! Numbers as programs print them.

use std::time::Duration;

/// A time in milliseconds.
#[must_use]
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A number of things: `1 thread`, `2 threads`.
#[must_use]
pub fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The middle value; of an even number of values, the mean of the middle two. `None` if there are none.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_value_does_not_move_the_median() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([10.0, 12.0, 0.1, 11.0, 13.0]), Some(11.0));
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn one_thing_has_no_s() {
        assert_eq!([0, 1, 2].map(|count| plural(count, "task")), ["0 tasks", "1 task", "2 tasks"]);
    }
}
