//! [`Outage`]: a time without a connection.

use tokio::time::Instant;

use crate::error::Error;
use crate::link::Deadline;

/// The most reasons that are logged as warnings: a reason may contain something that differs each time.
const MAX_WARNINGS: usize = 8;

/// A time without a connection of a subscriber.
pub(super) struct Outage {
    begin: Instant,
    /// When it ended, and its last reason.
    end: Option<(Instant, Error)>,
    /// The reasons that are logged.
    warned: Vec<String>,
}

impl Outage {
    pub(super) fn new() -> Self {
        Self { begin: Instant::now(), end: None, warned: Vec::new() }
    }

    /// Notes that there is a connection again.
    pub(super) fn ended(&mut self, why: Error) {
        self.end = Some((Instant::now(), why));
    }

    /// True the first time for each reason: it is logged as a warning then. False after the most warnings.
    pub(super) fn warns(&mut self, reason: &str) -> bool {
        let warns = self.warned.len() < MAX_WARNINGS && !self.warned.iter().any(|warned| warned == reason);
        if warns {
            self.warned.push(reason.to_owned());
        }
        warns
    }

    /// True if a change with this deadline failed before the connection was lost: the change stays requested.
    pub(super) fn began_after(&self, deadline: Deadline) -> bool {
        deadline.at <= self.begin
    }

    /// Why a change with this deadline failed while there was no connection; `None` if it did not.
    pub(super) fn reason_of(&self, deadline: Deadline) -> Option<Error> {
        let (end, why) = self.end.as_ref()?;
        (!self.began_after(deadline) && deadline.at <= *end).then(|| why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_alternate_are_warned_of_once_each() {
        let mut outage = Outage::new();
        let warned: Vec<_> =
            ["refused", "closed"].repeat(3).into_iter().map(|why| outage.warns(why)).collect();
        assert_eq!(warned, [true, true, false, false, false, false]);
    }

    #[test]
    fn reasons_that_differ_each_time_do_not_fill_the_log() {
        let mut outage = Outage::new();
        assert_eq!((0..1000).filter(|port| outage.warns(&format!("port {port}"))).count(), MAX_WARNINGS);
    }
}
