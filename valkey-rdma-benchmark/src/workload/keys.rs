//! The number behind each placeholder of each request.

use std::fmt;
use std::num::NonZeroU64;

use super::{Distribution, mix};

/// Draws the numbers that stand behind `__rand_int__` and its relatives.
///
/// A number depends on the request's number and on the placeholder alone, so two runs with one seed use the same keys
/// whichever connection happens to send them, and the keys that a test will read are known before it starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Keys {
    /// Number of keys (`-r`); `None` for a single one.
    pub(crate) len: Option<NonZeroU64>,
    /// Where the sequence of random numbers starts (`--seed`).
    pub(crate) seed: u64,
    /// Which keys are drawn how often.
    pub(crate) order: Order,
}

/// How placeholders get their numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Order {
    /// At random.
    Random(Distribution),
    /// One after the other, over and over (`--sequential`).
    Sequential,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Random(distribution) => distribution.fmt(f),
            Order::Sequential => f.write_str("sequential"),
        }
    }
}

impl Keys {
    /// Largest keyspace: what 12 digits can tell apart.
    pub(crate) const MAX: u64 = 1_000_000_000_000;

    /// One key for all requests.
    pub(crate) const SINGLE: Keys = Keys { len: None, seed: 0, order: Order::Sequential };

    /// Random keys below `len`.
    pub(crate) fn random(len: Option<NonZeroU64>, seed: u64, distribution: Distribution) -> Keys {
        Keys { len, seed, order: Order::Random(distribution) }
    }

    /// The seed, if keys are drawn with it.
    pub(crate) fn random_seed(&self) -> Option<u64> {
        (self.len.is_some() && matches!(self.order, Order::Random(_))).then_some(self.seed)
    }

    /// How keys are drawn, as `--key-dist` takes it, or `sequential`; `None` for a single key.
    pub(crate) fn order_text(&self) -> Option<String> {
        self.len.map(|_| self.order.to_string())
    }

    /// Every key below `len` in turn.
    pub(crate) fn sequential(len: Option<NonZeroU64>) -> Keys {
        Keys { len, seed: 0, order: Order::Sequential }
    }

    /// Number of different keys.
    pub(crate) fn count(&self) -> u64 {
        self.len.map_or(1, NonZeroU64::get)
    }

    /// The number for placeholder `slot` of request `number`.
    pub(crate) fn number(&self, number: u64, slot: Slot) -> u64 {
        let Some(len) = self.len else { return 0 };
        match self.order {
            Order::Random(distribution) => {
                let place = match slot {
                    Slot::Each { position, .. } => u64::from(position),
                    Slot::Shared(counter) => SHARED | u64::from(counter),
                };
                distribution.pick(mix(self.seed ^ mix(number ^ place << 48)), len.get())
            }
            Order::Sequential => match slot {
                Slot::Each { position, of } => (number * u64::from(of) + u64::from(position)) % len,
                Slot::Shared(_) => number % len,
            },
        }
    }
}

/// Sets the draws of shared placeholders apart from those of `__rand_int__`.
const SHARED: u64 = 1 << 15;

/// Which placeholder of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The `position`-th of `of` times `__rand_int__`: each occurrence has a number of its own.
    Each {
        /// From 0.
        position: u16,
        /// How often the command has it.
        of: u16,
    },
    /// `__rand_1st__` to `__rand_9th__`: all occurrences in one command have the same number.
    Shared(u8),
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Slot = Slot::Each { position: 0, of: 1 };

    fn keys(len: u64, seed: u64) -> Keys {
        Keys::random(NonZeroU64::new(len), seed, Distribution::Uniform)
    }

    #[test]
    fn random_keys_stay_below_the_keyspace_and_depend_on_the_seed() {
        let draw = |seed| (0..1000).map(|number| keys(7, seed).number(number, FIRST)).collect::<Vec<_>>();
        assert!(draw(1).iter().all(|&index| index < 7));
        assert!((0..7).all(|index| draw(1).contains(&index)));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn occurrences_of_rand_int_differ_and_those_of_a_shared_placeholder_do_not() {
        let keys = keys(1 << 40, 0);
        let second = Slot::Each { position: 1, of: 2 };
        assert_ne!(keys.number(5, FIRST), keys.number(5, second));
        assert_eq!(keys.number(5, Slot::Shared(1)), keys.number(5, Slot::Shared(1)));
        assert_ne!(keys.number(5, Slot::Shared(1)), keys.number(5, Slot::Shared(2)));
        assert_ne!(keys.number(5, Slot::Shared(1)), keys.number(6, Slot::Shared(1)));
    }

    #[test]
    fn sequential_numbers_count_each_occurrence_and_wrap() {
        let keys = Keys::sequential(NonZeroU64::new(5));
        let of = |number, position| keys.number(number, Slot::Each { position, of: 2 });
        assert_eq!([of(0, 0), of(0, 1), of(1, 0), of(1, 1), of(2, 0), of(2, 1)], [0, 1, 2, 3, 4, 0]);
        let shared: Vec<_> = (0..6).map(|number| keys.number(number, Slot::Shared(3))).collect();
        assert_eq!(shared, [0, 1, 2, 3, 4, 0]);
    }
}
