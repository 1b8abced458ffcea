//! `--compare-with`: what differs between the two sides of a comparison.

use std::str::FromStr;

use super::matrix::{Axis, Matrix};
use crate::drive::Choice;
use crate::run::Plan;

/// `--compare-with`: how the requests to the other server are arranged, where it differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtherSide {
    /// `library`: the client library.
    pub(crate) library: Option<String>,
    /// The library of that name.
    pub(crate) through: Option<Choice>,
    /// The other settings.
    point: Vec<(Axis, u64)>,
}

impl FromStr for OtherSide {
    type Err = String;

    fn from_str(text: &str) -> Result<OtherSide, String> {
        let (library, shape): (Vec<&str>, Vec<&str>) =
            text.split_whitespace().partition(|item| item.starts_with("library="));
        let bad =
            || format!("{text:?}: expected settings of c, P, tasks or threads, such as \"c=8 tasks=1\"");
        let mut points = match shape[..] {
            [] => vec![Vec::new()],
            _ => shape.join(" ").parse::<Matrix>().map_err(|_| bad())?.combinations(),
        };
        let point = points.pop().filter(|_| points.is_empty()).ok_or_else(bad)?;
        // The same values, in the same window.
        if point.iter().any(|(axis, _)| matches!(axis, Axis::Size | Axis::RxSize)) || library.len() > 1 {
            return Err(bad());
        }
        let library = library.first().map(|item| item["library=".len()..].to_owned());
        Ok(OtherSide { library, through: None, point })
    }
}

impl OtherSide {
    /// Whether tasks share its connections through a client library.
    pub(crate) fn is_shared(&self) -> bool {
        self.library.is_some() || self.point.iter().any(|&(axis, value)| axis == Axis::Tasks && value > 0)
    }

    /// The threads that drive its connections, if it says so; else 1.
    pub(crate) fn threads(&self) -> u64 {
        self.point.iter().find(|(axis, _)| *axis == Axis::Threads).map_or(1, |&(_, threads)| threads)
    }

    /// The plan of the other side.
    pub(crate) fn of(&self, plan: &Plan) -> Plan {
        let mut plan = plan.at(&self.point);
        let shape = &mut plan.shape;
        shape.library = self.through.clone();
        if shape.library.is_some() {
            shape.tasks_per_connection.get_or_insert(1);
        }
        plan
    }
}
