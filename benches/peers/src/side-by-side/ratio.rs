//! Ratios: two programs compared round by round, because the machine's mood changes between rounds and not within.

use crate::sample::{Figure, Sample, Samples};

/// Ours against theirs, round by round.
#[derive(Clone, Debug)]
pub(crate) struct Ratio(Vec<f64>);

impl Ratio {
    pub(crate) fn of(samples: &Samples, against: usize, figure: Figure) -> Self {
        Self::between(&samples[0], &samples[against], figure)
    }

    pub(crate) fn between(ours: &[Sample], theirs: &[Sample], figure: Figure) -> Self {
        let pairs = ours.iter().zip(theirs);
        Self(pairs.filter_map(|(ours, theirs)| Some(ours.figure(figure)? / theirs.figure(figure)?)).collect())
    }

    pub(crate) fn median(&self) -> Option<f64> {
        median(&self.0)
    }

    /// Lowest and highest.
    pub(crate) fn range(&self) -> Option<(f64, f64)> {
        Some((self.0.iter().copied().reduce(f64::min)?, self.0.iter().copied().reduce(f64::max)?))
    }

    pub(crate) fn text(&self) -> String {
        match (self.median(), self.range()) {
            (Some(middle), Some((lowest, highest))) => format!("{middle:.2}x ({lowest:.2} to {highest:.2})"),
            _ => "-".to_owned(),
        }
    }
}

/// The middle one, or what lies between the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64, p50: Option<f64>) -> Sample {
        Sample { rate, p50, p99: None, client_cpu: Some(10.0), server_cpu: None }
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let samples = vec![
            vec![sample(200.0, None), sample(300.0, None), sample(80.0, None)],
            vec![sample(100.0, None), sample(100.0, None), sample(20.0, None)],
        ];
        assert_eq!(Ratio::of(&samples, 1, Figure::Rate).text(), "3.00x (2.00 to 4.00)");
    }

    #[test]
    fn what_a_program_does_not_measure_has_no_ratio() {
        let samples = vec![vec![sample(1.0, Some(1.0))], vec![sample(1.0, None)]];
        assert_eq!(Ratio::of(&samples, 1, Figure::P50).text(), "-");
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
