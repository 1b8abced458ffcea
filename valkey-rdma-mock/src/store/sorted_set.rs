//! Sorted sets.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound as RangeBound;

use bytes::Bytes;
use indexmap::IndexMap;

use super::keep;

/// A score: any number but NaN, in its natural order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score(pub(crate) f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        // Equal for 0 and -0, unlike `total_cmp`.
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

/// A limit of a range of scores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) score: f64,
    pub(crate) exclusive: bool,
}

/// Members with scores, ordered by score and then by member.
#[derive(Debug, Clone, Default)]
pub(crate) struct SortedSet {
    /// A member that is there during a whole scan never moves behind the scan's cursor, which counts from the end.
    scores: IndexMap<Bytes, f64>,
    order: BTreeSet<(Score, Bytes)>,
    changes: u64,
}

impl SortedSet {
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// From the lowest score.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> + ExactSizeIterator {
        self.order.iter().map(|(score, member)| (member, score.0))
    }

    /// In the order of scans: additions come last, and removals move the last member only.
    pub(crate) fn at(&self, place: usize) -> Option<(&Bytes, f64)> {
        self.scores.get_index(place).map(|(member, score)| (member, *score))
    }

    /// Sets a member's score, which is not NaN. `true`: the member is new.
    pub(crate) fn set(&mut self, member: &Bytes, score: f64) -> bool {
        // Without the sign of zero.
        let score = score + 0.0;
        if let Some(old) = self.scores.get_mut(member) {
            if *old != score {
                let entry = (Score(*old), member.clone());
                if let Some((_, member)) = self.order.take(&entry) {
                    self.order.insert((Score(score), member));
                }
                *old = score;
                self.changes += 1;
            }
            return false;
        }
        let member = keep(member);
        self.changes += 1;
        self.order.insert((Score(score), member.clone()));
        self.scores.insert(member, score);
        true
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let (member, score) = self.scores.swap_remove_entry(member)?;
        self.changes += 1;
        self.order.remove(&(Score(score), member));
        Some(score)
    }

    /// Removes the member with the lowest score, or with the highest.
    pub(crate) fn pop(&mut self, highest: bool) -> Option<(Bytes, f64)> {
        let (score, member) = if highest { self.order.pop_last() } else { self.order.pop_first() }?;
        self.scores.swap_remove(&member);
        self.changes += 1;
        Some((member, score.0))
    }

    /// How many come before `member`.
    pub(crate) fn rank(&self, member: &[u8]) -> Option<usize> {
        let (member, score) = self.scores.get_key_value(member)?;
        Some(self.order.range(..(Score(*score), member.clone())).count())
    }

    /// The members with scores from `min` to `max`.
    pub(crate) fn by_score(&self, min: Bound, max: Bound) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        let start = RangeBound::Included((Score(min.score), Bytes::new()));
        let contradictory = min.score > max.score;
        let range = if contradictory { None } else { Some(self.order.range((start, RangeBound::Unbounded))) };
        let within = move |score: f64| {
            (if min.exclusive { score > min.score } else { score >= min.score })
                && (if max.exclusive { score < max.score } else { score <= max.score })
        };
        // The upper end cannot be named: there is no greatest member.
        let end = range.map(|range| range.take_while(|(score, _)| score.0 <= max.score).collect::<Vec<_>>());
        end.unwrap_or_default()
            .into_iter()
            .map(|(score, member)| (member, score.0))
            .filter(move |(_, score)| within(*score))
    }
}
