//! `--matrix`: every combination of some shapes.

use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::workload::Sizes;

/// The axes, each with its values in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matrix {
    axes: Vec<(Axis, Vec<u64>)>,
}

/// What can vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// `c`: connections.
    Connections,
    /// `P`: requests per pipeline.
    Pipeline,
    /// `d`: bytes of values.
    Size,
    /// `tasks`: tasks on each connection; 0 drives it directly.
    Tasks,
    /// `threads`: threads.
    Threads,
    /// `rx`: bytes of the receive window.
    RxSize,
}

/// An axis that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown axis {0:?}; expected axes c, P, d, tasks, threads or rx, separated by blanks, as in \"c=1,50 P=1,16\""
)]
pub(crate) struct MatrixError(String);

impl Axis {
    const ALL: [Axis; 6] =
        [Axis::Connections, Axis::Pipeline, Axis::Size, Axis::Tasks, Axis::Threads, Axis::RxSize];

    /// The name in `--matrix`, the name of the flag's field in `Args`, and the values.
    fn facts(self) -> (&'static str, &'static str, RangeInclusive<u64>) {
        match self {
            Axis::Connections => ("c", "clients", 1..=10_000),
            Axis::Pipeline => ("P", "pipeline", 1..=100_000),
            Axis::Size => ("d", "sizes", 1..=Sizes::MAX),
            Axis::Tasks => ("tasks", "tasks_per_connection", 0..=10_000),
            Axis::Threads => ("threads", "threads", 1..=512),
            Axis::RxSize => ("rx", "rx_size", 65_536..=16_777_216),
        }
    }

    /// The name in `--matrix`.
    pub(crate) fn name(self) -> &'static str {
        self.facts().0
    }

    /// The name of the flag's field in `Args`.
    pub(crate) fn id(self) -> &'static str {
        self.facts().1
    }
}

/// A point as the user could have written it: `c=5 P=4`.
pub(crate) fn point_text(point: &[(Axis, u64)]) -> String {
    point.iter().map(|(axis, value)| format!("{}={value}", axis.name())).collect::<Vec<_>>().join(" ")
}

impl FromStr for Matrix {
    type Err = MatrixError;

    fn from_str(text: &str) -> Result<Matrix, MatrixError> {
        let mut axes: Vec<(Axis, Vec<u64>)> = Vec::new();
        for item in text.split([' ', ';']).filter(|item| !item.is_empty()) {
            let bad = || MatrixError(item.to_owned());
            let (name, values) = item.split_once('=').ok_or_else(bad)?;
            let axis = Axis::ALL.into_iter().find(|axis| axis.name() == name).ok_or_else(bad)?;
            let (.., range) = axis.facts();
            let read = |value: &str| value.parse().ok().filter(|value| range.contains(value)).ok_or_else(bad);
            let values = values.split(',').map(read).collect::<Result<_, _>>()?;
            if axes.iter().any(|(known, _)| *known == axis) {
                return Err(bad());
            }
            axes.push((axis, values));
        }
        if axes.is_empty() { Err(MatrixError(text.to_owned())) } else { Ok(Matrix { axes }) }
    }
}

impl Matrix {
    /// Whether some combination has tasks that share connections.
    pub(crate) fn has_tasks(&self) -> bool {
        self.axes.iter().any(|(axis, values)| *axis == Axis::Tasks && values.iter().any(|&tasks| tasks > 0))
    }

    /// What varies.
    pub(crate) fn axes(&self) -> impl Iterator<Item = Axis> {
        self.axes.iter().map(|(axis, _)| *axis)
    }

    /// Every combination, the last axis varying fastest.
    pub(crate) fn combinations(&self) -> Vec<Vec<(Axis, u64)>> {
        let mut all = vec![Vec::new()];
        for (axis, values) in &self.axes {
            all = all
                .iter()
                .flat_map(|some| {
                    values
                        .iter()
                        .map(|&value| [some.as_slice(), &[(*axis, value)]].concat())
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_comes_once() {
        let matrix: Matrix = "c=1,50 P=1,16;d=64".parse().unwrap();
        let combinations = matrix.combinations();
        assert_eq!(combinations.len(), 4);
        assert_eq!(combinations[1], [(Axis::Connections, 1), (Axis::Pipeline, 16), (Axis::Size, 64)]);
        assert_eq!(point_text(&combinations[1]), "c=1 P=16 d=64");
    }

    #[test]
    fn an_invalid_matrix_is_refused() {
        for text in ["", "c", "c=", "c=0", "x=1", "c=1 c=2", "P=1,a", "rx=1"] {
            assert!(text.parse::<Matrix>().is_err(), "{text}");
        }
    }
}
