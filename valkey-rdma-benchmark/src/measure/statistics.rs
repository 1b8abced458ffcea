//! Medians, and ratios with their confidence intervals.

/// How many times as much, and between what it lies with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    /// The geometric mean over rounds.
    pub(crate) mean: f64,
    /// The lower end.
    pub(crate) low: f64,
    /// The upper end.
    pub(crate) high: f64,
}

impl Ratio {
    /// From the logarithms of the rounds' ratios: Student's interval, which the logarithm makes symmetric.
    pub(crate) fn of_logs(logs: Vec<f64>) -> Ratio {
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let spread = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let half = student(logs.len().saturating_sub(1)) * (spread / count).sqrt();
        Ratio { mean: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() }
    }

    /// Whether the interval leaves no doubt which is more.
    #[cfg(test)]
    pub(crate) fn is_clear(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// The 97.5 % quantile of Student's distribution.
///
/// Source: any table of it; beyond 30 degrees of freedom by the expansion of Cornish and Fisher.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    match freedom {
        0 => f64::INFINITY,
        1..=30 => TABLE[freedom - 1],
        more => 1.96 + 2.372 / more as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_ratio_is_students() {
        let ratio = Ratio::of_logs(vec![2f64.ln(), 2f64.ln(), 2f64.ln()]);
        assert!((ratio.mean - 2.0).abs() < 1e-9 && ratio.is_clear(), "{ratio:?}");

        // Logarithms -1, 0, 1: mean 0, deviation 1, so the half width is 4.303 / sqrt(3).
        let unsure = Ratio::of_logs(vec![-1.0, 0.0, 1.0]);
        assert!((unsure.high.ln() - 4.303 / 3f64.sqrt()).abs() < 1e-9 && !unsure.is_clear(), "{unsure:?}");
    }

    #[test]
    fn one_round_gives_no_interval() {
        let ratio = Ratio::of_logs(vec![0.5]);
        assert!(!ratio.is_clear(), "{ratio:?}");
    }
}
