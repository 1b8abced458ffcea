//! `-d`: one size, or several with weights and ranges.

use std::fmt;
use std::str::FromStr;

use super::{below, mix};

/// How long values are, by the key they belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Ranges of lengths in bytes, each with the sum of the weights up to and including its own.
    ranges: Vec<(u64, u64, u64)>,
}

/// A size that cannot be read or is out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a list of sizes; expected BYTES or BYTES-BYTES, from 1 to {max}, or several with weights, as in 64:10,1024-4096:1",
    max = Sizes::MAX
)]
pub(crate) struct SizesError(String);

impl Sizes {
    /// Largest value: Valkey's default `proto-max-bulk-len`.
    pub(crate) const MAX: u64 = 512 << 20;

    /// All values of one length.
    pub(crate) fn fixed(len: u64) -> Sizes {
        Sizes { ranges: vec![(len, len, 1)] }
    }

    /// The length of the value of key `key`.
    pub(crate) fn of(&self, key: u64) -> usize {
        match self.ranges[..] {
            [(least, most, _)] if least == most => least as usize,
            _ => self.drawn(key),
        }
    }

    fn drawn(&self, key: u64) -> usize {
        let total = self.ranges.last().map_or(1, |range| range.2);
        let hash = mix(key ^ 0x5ca1_ab1e);
        let place = below(hash, total);
        let (least, most, _) = self.ranges.iter().find(|range| place < range.2).unwrap_or(&self.ranges[0]);
        (least + below(mix(hash), most - least + 1)) as usize
    }

    /// The longest length.
    pub(crate) fn longest(&self) -> usize {
        self.ranges.iter().map(|range| range.1).max().unwrap_or(0) as usize
    }
}

impl FromStr for Sizes {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || SizesError(text.to_owned());
        let size =
            |text: &str| text.parse().ok().filter(|size| (1..=Sizes::MAX).contains(size)).ok_or_else(bad);
        let mut ranges = Vec::new();
        let mut total = 0u64;
        for item in text.split(',') {
            let (range, weight) = match item.split_once(':') {
                Some((range, weight)) => {
                    (range, weight.parse::<u32>().ok().filter(|weight| *weight > 0).ok_or_else(bad)?)
                }
                None => (item, 1),
            };
            let (least, most) = match range.split_once('-') {
                Some((least, most)) => (size(least)?, size(most)?),
                None => (size(range)?, size(range)?),
            };
            if least > most {
                return Err(bad());
            }
            total += u64::from(weight);
            ranges.push((least, most, total));
        }
        Ok(Sizes { ranges })
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = 0;
        for (number, &(least, most, sum)) in self.ranges.iter().enumerate() {
            if number > 0 {
                out.write_str(",")?;
            }
            write!(out, "{least}")?;
            if most > least {
                write!(out, "-{most}")?;
            }
            if self.ranges.len() > 1 {
                write!(out, ":{}", sum - before)?;
            }
            before = sum;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_and_ranges_are_kept() {
        let sizes: Sizes = "64:10,1024-4096:1".parse().unwrap();
        assert_eq!(sizes.longest(), 4096);
        let lens: Vec<usize> = (0..110_000).map(|key| sizes.of(key)).collect();
        let small = lens.iter().filter(|&&len| len == 64).count();
        assert!((99_000..101_000).contains(&small), "{small}");
        assert!(lens.iter().all(|&len| len == 64 || (1024..=4096).contains(&len)));
        assert_eq!(lens[17], sizes.of(17), "a key keeps its length");
        assert_eq!(sizes.to_string(), "64:10,1024-4096:1");
    }

    #[test]
    fn one_size_is_for_all() {
        let sizes: Sizes = "536870912".parse().unwrap();
        assert_eq!((sizes.longest(), sizes.of(9)), (512 << 20, 512 << 20));
        assert_eq!(sizes, Sizes::fixed(512 << 20));
    }

    #[test]
    fn an_invalid_size_is_refused() {
        for text in ["", "0", "536870913", "a", "1,", "4-2", "4:0", "4:", "-4", "1-2-3"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }
}
