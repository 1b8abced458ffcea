//! What goes wrong on one connection: counts its occasions and decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;

use super::fault::{Fault, Occasion};

/// A fault, its value, and when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) fault: Fault,
    pub(super) value: u32,
    pub(super) when: When,
}

/// Which occasions of a connection, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Nth(u64),
    From(u64),
    OneIn(u64),
}

/// The rules of one connection, with the occasions each has seen.
#[derive(Debug)]
pub(super) struct Script {
    rules: Vec<(Rule, u64)>,
    random: Rng,
    happened: Arc<AtomicU64>,
}

impl Script {
    pub(super) fn new(rules: &[Rule], seed: u64, happened: Arc<AtomicU64>) -> Self {
        let rules = rules.iter().map(|&rule| (rule, 0)).collect();
        Self { rules, random: Rng::with_seed(seed), happened }
    }

    /// Counts an occasion. Returns the faults that must happen now, with their values. The caller calls [`happened`](Self::happened)
    /// for each fault that takes effect.
    pub(super) fn strike(&mut self, occasion: Occasion) -> Vec<(Fault, u32)> {
        let mut struck = Vec::new();
        for (rule, seen) in &mut self.rules {
            if rule.fault.entry().occasion != occasion {
                continue;
            }
            *seen += 1;
            let strikes = match rule.when {
                When::Nth(number) => *seen == number,
                When::From(first) => *seen >= first,
                When::OneIn(chances) => self.random.u64(0..chances) == 0,
            };
            if strikes {
                struck.push((rule.fault, rule.value));
            }
        }
        struck
    }

    /// Counts a fault that the peer can notice. A fault that changed nothing, or found no room in the queue, does not count.
    pub(super) fn happened(&self, fault: Fault) {
        tracing::info!(fault = fault.name(), "went wrong on purpose");
        self.happened.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn noise(&mut self, bytes: &mut [u8]) {
        self.random.fill(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Faults;
    use super::*;

    fn strikes(spec: &str, occasions: usize) -> Vec<usize> {
        let mut script = spec.parse::<Faults>().expect("a script").script();
        (1..=occasions).filter(|_| !script.strike(Occasion::Data).is_empty()).collect()
    }

    #[test]
    fn faults_happen_at_their_occasions_and_no_others() {
        assert_eq!(strikes("imm-over@3", 6), [3]);
        assert_eq!(strikes("imm-over@3..", 6), [3, 4, 5, 6]);
        assert_eq!(strikes("imm-over", 2), [1, 2]);
        assert_eq!(strikes("register-missing", 5), [], "another occasion");
    }

    #[test]
    fn the_same_seed_gives_the_same_chances() {
        let first = strikes("imm-over@1/5,seed=3", 200);
        assert_eq!(first, strikes("imm-over@1/5,seed=3", 200));
        assert_ne!(first, strikes("imm-over@1/5,seed=4", 200));
        assert!(first.len() > 10 && first.len() < 100, "{first:?}");
    }
}
