//! Outages: times without any connection.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use valkey_rdma_transport::sync::lock;

/// A time without any connection, since the start of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// When the last connection was lost.
    pub from: Duration,
    /// When the first was back; `None` if none came back.
    pub to: Option<Duration>,
}

/// Watches how many connections are up.
#[derive(Debug)]
pub(crate) struct Outages {
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    up: usize,
    seen: Vec<Outage>,
    lost: u64,
}

impl Outages {
    /// The number of open connections.
    pub(crate) fn new(started: Instant, up: usize) -> Outages {
        Outages { started, state: Mutex::new(State { up, seen: Vec::new(), lost: 0 }) }
    }

    /// A connection was lost.
    pub(crate) fn lost(&self) {
        let mut state = lock(&self.state);
        state.lost += 1;
        if state.up == 0 {
            return; // The outage goes on.
        }
        state.up -= 1;
        if state.up == 0 {
            state.seen.push(Outage { from: self.started.elapsed(), to: None });
        }
    }

    /// A connection is back.
    pub(crate) fn back(&self) {
        let mut state = lock(&self.state);
        state.up += 1;
        if state.up == 1
            && let Some(last) = state.seen.last_mut()
        {
            last.to = Some(self.started.elapsed());
        }
    }

    /// When the present outage began; `None` if a connection is up.
    pub(crate) fn present(&self) -> Option<Duration> {
        lock(&self.state).seen.last().filter(|outage| outage.to.is_none()).map(|outage| outage.from)
    }

    /// All outages so far, and how many connections were lost.
    pub(crate) fn so_far(&self) -> (Vec<Outage>, u64) {
        let state = lock(&self.state);
        (state.seen.clone(), state.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_begins_with_the_last_loss_and_ends_with_the_first_return() {
        let outages = Outages::new(Instant::now(), 2);
        outages.lost();
        assert_eq!(outages.so_far(), (vec![], 1));
        outages.lost();
        assert!(matches!(outages.so_far().0[..], [Outage { to: None, .. }]));
        assert!(outages.present().is_some());
        outages.back();
        assert_eq!(outages.present(), None);
        outages.back();
        let (seen, lost) = outages.so_far();
        assert!(matches!(seen[..], [Outage { from, to: Some(to) }] if from <= to), "{seen:?}");
        assert_eq!(lost, 2);
    }

    #[test]
    fn a_loss_during_an_outage_begins_no_other() {
        let outages = Outages::new(Instant::now(), 1);
        outages.lost();
        outages.lost();
        let (seen, lost) = outages.so_far();
        assert_eq!((seen.len(), lost), (1, 2), "{seen:?}");
    }
}
