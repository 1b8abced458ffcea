//! An axis: from values to places, and where its ticks are.

/// An axis: from which value to which, and whether a factor or a difference has the same width everywhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    /// From `low` to `high`, evenly.
    #[must_use]
    pub fn linear(low: f64, high: f64) -> Axis {
        Axis { low, high: if high > low { high } else { low + 1.0 }, logarithmic: false }
    }

    /// From `low` to `high`, both above zero; each factor of ten has the same width.
    #[must_use]
    pub fn logarithmic(low: f64, high: f64) -> Axis {
        let low = low.max(1e-9);
        Axis { low, high: high.max(low * 2.0), logarithmic: true }
    }

    /// Where a value is: 0 at the low end, 1 at the high end. Values outside are at the ends.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let place = match self.logarithmic {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    /// Round values, at most eight.
    #[must_use]
    pub fn ticks(&self) -> Vec<f64> {
        let mut ticks = if self.logarithmic { self.decades() } else { self.round_steps() };
        ticks.retain(|tick| (self.low..=self.high * (1.0 + 1e-9)).contains(tick));
        ticks
    }

    fn round_steps(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..first + 8).map(|number| number as f64 * step).collect()
    }

    fn decades(&self) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let each: &[f64] = match last - first {
            ..=2 => &[1.0, 2.0, 5.0],
            3 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let stride = usize::try_from((last - first) / 8 + 1).unwrap_or(1);
        (first..=last)
            .step_by(stride)
            .flat_map(|decade| each.iter().map(move |factor| factor * 10f64.powi(decade)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Axis;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Axis::linear(0.0, 47.0).ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(Axis::logarithmic(0.03, 300.0).ticks(), [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(Axis::logarithmic(0.1, 5.0).ticks(), [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]);
    }

    #[test]
    fn places_are_between_the_ends() {
        let axis = Axis::logarithmic(0.01, 100.0);
        assert!((axis.place(1.0) - 0.5).abs() < 1e-9);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 1.0));
        assert_eq!(Axis::linear(3.0, 3.0).place(3.0), 0.0, "an empty range has a width all the same");
    }
}
