//! How often each key of a keyspace is used: all alike, Zipf's law, or a hot part.

use std::fmt;
use std::str::FromStr;

use super::{below, mix, unit};

/// Which key of a keyspace a random draw picks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Distribution {
    /// Every key equally often.
    Uniform,
    /// Key of rank `r` as often as `1 / r^exponent`; rank 1 is key 0.
    Zipf {
        /// Above 0 and not 1; around 1 is what caches see.
        exponent: f64,
    },
    /// The first `keys` percent of the keys get `accesses` percent of the accesses.
    Hot {
        /// Percent of the keys, above 0, at most 100.
        keys: f64,
        /// Percent of the accesses, 0 to 100.
        accesses: f64,
    },
}

/// A distribution that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown key distribution {0:?}; expected uniform, zipf:EXPONENT (zipf:0.99) or hot:KEYS%:ACCESSES% (hot:1%:90%)"
)]
pub(crate) struct DistributionError(String);

impl FromStr for Distribution {
    type Err = DistributionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || DistributionError(text.to_owned());
        let number = |text: &str| text.trim_end_matches('%').parse::<f64>().ok().filter(|n| n.is_finite());
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["uniform"] => Ok(Distribution::Uniform),
            ["zipf"] => Ok(Distribution::Zipf { exponent: 0.99 }),
            ["zipf", exponent] => {
                let exponent = number(exponent).filter(|e| *e > 0.0 && *e <= 10.0).ok_or_else(bad)?;
                // The closed form below is not defined at exactly 1; its neighbour gives the same keys.
                Ok(Distribution::Zipf { exponent: if exponent == 1.0 { 1.000_001 } else { exponent } })
            }
            ["hot", keys, accesses] => {
                let keys = number(keys).filter(|k| *k > 0.0 && *k <= 100.0).ok_or_else(bad)?;
                let accesses = number(accesses).filter(|a| (0.0..=100.0).contains(a)).ok_or_else(bad)?;
                Ok(Distribution::Hot { keys, accesses })
            }
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Distribution {
    /// As `--key-dist` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => f.write_str("uniform"),
            Distribution::Zipf { exponent } => write!(f, "zipf:{exponent}"),
            Distribution::Hot { keys, accesses } => write!(f, "hot:{keys}%:{accesses}%"),
        }
    }
}

impl Distribution {
    /// The key below `len` that the random number `hash` picks.
    pub(crate) fn pick(self, hash: u64, len: u64) -> u64 {
        match self {
            Distribution::Uniform => below(hash, len),
            Distribution::Zipf { exponent } => zipf(exponent, hash, len),
            Distribution::Hot { keys, accesses } => {
                let hot = ((len as f64 * keys / 100.0).ceil() as u64).clamp(1, len);
                if hot == len || unit(hash) * 100.0 < accesses {
                    below(mix(hash), hot)
                } else {
                    hot + below(mix(hash), len - hot)
                }
            }
        }
    }
}

/// Draws a rank by rejection-inversion, exact for any number of keys and without a table.
///
/// Source: W. Hörmann, G. Derflinger: "Rejection-inversion to generate variates from monotone discrete distributions"
/// (1996).
fn zipf(exponent: f64, mut hash: u64, len: u64) -> u64 {
    let q = 1.0 - exponent;
    // The integral of x^-exponent, and its inverse.
    let integral = |x: f64| (x.powf(q) - 1.0) / q;
    let inverse = |y: f64| (1.0 + y * q).powf(1.0 / q);
    let (low, high) = (integral(1.5) - 1.0, integral(len as f64 + 0.5));
    let close = 2.0 - inverse(integral(2.5) - 2f64.powf(-exponent));
    loop {
        let y = high + unit(hash) * (low - high);
        let x = inverse(y);
        let rank = x.round().clamp(1.0, len as f64);
        if rank - x <= close || y >= integral(rank + 0.5) - rank.powf(-exponent) {
            return rank as u64 - 1;
        }
        hash = mix(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: &str, len: u64) -> Vec<u64> {
        let distribution: Distribution = distribution.parse().unwrap();
        let mut counts = vec![0; len as usize];
        for number in 0..200_000 {
            counts[distribution.pick(mix(number), len) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_keys_are_used_alike() {
        let counts = counts("uniform", 10);
        assert!(counts.iter().all(|&count| (19_000..21_000).contains(&count)), "{counts:?}");
    }

    #[test]
    fn zipf_follows_its_law() {
        for exponent in [0.5, 0.99, 1.0, 2.0] {
            let counts = counts(&format!("zipf:{exponent}"), 100);
            let sum: f64 = (1..=100).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1, 2, 10] {
                let expected = 200_000.0 * f64::from(rank).powf(-exponent) / sum;
                let off = (counts[rank as usize - 1] as f64 - expected).abs();
                assert!(
                    off < 6.0 * expected.sqrt(),
                    "exponent {exponent}, rank {rank}: {off} off {expected}"
                );
            }
        }
    }

    #[test]
    fn hot_keys_get_their_share() {
        let counts = counts("hot:1%:90%", 1000);
        let hot: u64 = counts[..10].iter().sum();
        assert!((179_000..181_000).contains(&hot), "{hot}");
        assert_eq!("hot:1:90".parse::<Distribution>(), "hot:1%:90%".parse());
    }

    #[test]
    fn an_invalid_distribution_is_refused() {
        for text in [
            "",
            "normal",
            "zipf:0",
            "zipf:-1",
            "zipf:nan",
            "hot",
            "hot:0:50",
            "hot:10:101",
            "hot:1",
            "uniform:1",
        ] {
            assert!(text.parse::<Distribution>().is_err(), "{text}");
        }
    }
}
