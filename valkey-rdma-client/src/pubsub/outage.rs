//! [`Outage`]: a time without a connection.

use tokio::time::Instant;

use crate::error::Error;
use crate::multiplexer::Deadline;

/// A time without a connection of a subscriber.
pub(super) struct Outage {
    begin: Instant,
    /// When it ended, and its last reason.
    end: Option<(Instant, Error)>,
}

impl Outage {
    pub(super) fn new() -> Self {
        Self { begin: Instant::now(), end: None }
    }

    /// Notes that there is a connection again.
    pub(super) fn ended(&mut self, why: Error) {
        self.end = Some((Instant::now(), why));
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
