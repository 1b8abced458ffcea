//! Which percentiles the table of tests shows.

use std::fmt;
use std::str::FromStr;

/// At most this many fit into a table.
const MOST: usize = 8;

/// Some percentiles, in the order given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Percentiles {
    all: [f64; MOST],
    count: usize,
}

/// A list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a list of 1 to {MOST} percentiles; expected numbers above 0 and up to 100, as in 50,99,99.9"
)]
pub(crate) struct PercentilesError(String);

impl Percentiles {
    /// The median, and what 1 of 100 and 1 of 1000 requests exceed.
    pub(crate) const USUAL: Percentiles =
        Percentiles { all: [50.0, 99.0, 99.9, 0.0, 0.0, 0.0, 0.0, 0.0], count: 3 };

    /// Each percentile, from above 0 to 100.
    pub(crate) fn iter(&self) -> impl Iterator<Item = f64> {
        self.all.into_iter().take(self.count)
    }
}

impl FromStr for Percentiles {
    type Err = PercentilesError;

    fn from_str(text: &str) -> Result<Percentiles, PercentilesError> {
        let bad = || PercentilesError(text.to_owned());
        let mut percentiles = Percentiles { all: [0.0; MOST], count: 0 };
        for part in text.split(',') {
            let number: f64 = part.trim().parse().map_err(|_| bad())?;
            if !(number > 0.0 && number <= 100.0) {
                return Err(bad());
            }
            *percentiles.all.get_mut(percentiles.count).ok_or_else(bad)? = number;
            percentiles.count += 1;
        }
        Ok(percentiles)
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.iter().map(|percentile| percentile.to_string()).collect();
        out.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Percentiles;

    #[test]
    fn a_list_of_percentiles_is_read_and_nonsense_is_refused() {
        let read: Percentiles = "50, 99.99,100".parse().unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), [50.0, 99.99, 100.0]);
        assert_eq!(Percentiles::USUAL.to_string(), "50,99,99.9");
        for text in ["", "0", "101", "a", "50,,99", "nan", "1,2,3,4,5,6,7,8,9"] {
            assert!(text.parse::<Percentiles>().is_err(), "{text}");
        }
    }
}
