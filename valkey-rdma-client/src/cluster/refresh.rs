//! The task that reads the slot map again: one reading at a time, with a shortest interval between them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use super::discovery::ask;
use super::topology::Topology;
use crate::error::Error;
use crate::stats::ClusterCounters;
use valkey_rdma_transport::sync::{Mutex, lock};

/// A request to read the map.
#[derive(Default)]
pub(super) struct RefreshRequest {
    /// The outcome of the reading.
    pub(super) done: Option<oneshot::Sender<Result<(), Error>>>,
    /// True if it does not wait for the shortest interval to pass.
    pub(super) is_urgent: bool,
}

/// Asks for a reading soon. Never waits.
pub(super) fn request_refresh(requests: &mpsc::Sender<RefreshRequest>) {
    // A full channel has requests enough.
    let _full = requests.try_send(RefreshRequest::default());
}

/// The wait between readings that bring nothing new grows up to this many times the shortest.
const LONGEST_WAIT: u32 = 4;

/// What the task needs. It ends when the last client is dropped, with the sender of `requests`.
pub(super) struct RefreshTask {
    pub(super) topology: Weak<Topology>,
    pub(super) counters: Arc<Mutex<ClusterCounters>>,
    pub(super) requests: mpsc::Receiver<RefreshRequest>,
    pub(super) period: Option<Duration>,
    pub(super) shortest: Duration,
    /// How long a node may take to answer.
    pub(super) limit: Duration,
    pub(super) zones: bool,
}

impl RefreshTask {
    pub(super) async fn run(mut self) {
        let mut wait = self.shortest;
        let mut last = Instant::now();
        let mut quiet = 0;
        loop {
            let request = tokio::select! {
                request = self.requests.recv() => match request {
                    Some(request) => request,
                    None => return,
                },
                () = sleep(jittered(self.period.unwrap_or(FOREVER))), if self.period.is_some() => {
                    RefreshRequest::default()
                }
            };
            // Requests that come meanwhile are answered by the same reading.
            let mut is_urgent = request.is_urgent;
            let mut waiting: Vec<_> = request.done.into_iter().collect();
            let begin = sleep_until(last + jittered(wait));
            tokio::pin!(begin);
            while !is_urgent {
                tokio::select! {
                    () = &mut begin => break,
                    request = self.requests.recv() => match request {
                        Some(request) => {
                            is_urgent = request.is_urgent;
                            waiting.extend(request.done);
                        }
                        None => return,
                    },
                }
            }
            while let Ok(request) = self.requests.try_recv() {
                waiting.extend(request.done);
            }
            let Some(topology) = self.topology.upgrade() else { return };
            let sources = topology.sources();
            drop(topology);
            lock(&self.counters).refreshes += 1;
            let report = ask(&sources, self.limit, self.zones).await;
            last = Instant::now();
            let Some(topology) = self.topology.upgrade() else { return };
            let (is_new, outcome) = match report {
                Ok(report) => (topology.install(report), Ok(())),
                Err(error) => {
                    lock(&self.counters).failed_refreshes += 1;
                    warn!(error = %format_args!("{error:#}"), "the slot map cannot be read");
                    (false, Err(error))
                }
            };
            // Those that did not wait do not make others wait longer.
            quiet = if is_new { 0 } else { quiet + u32::from(!is_urgent) };
            wait = self.shortest.saturating_mul(1 << quiet.saturating_sub(1).min(LONGEST_WAIT.ilog2()));
            for done in waiting {
                // It may have gone away.
                drop(done.send(outcome.clone()));
            }
        }
    }
}

/// Between three quarters and five quarters of it: clients that saw the same failure do not ask at the same moments.
fn jittered(wait: Duration) -> Duration {
    wait.min(FOREVER).mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// Stands for no period. Longer ones could not be added to a moment.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_may_be_as_long_as_there_are() {
        for _ in 0..100 {
            assert!(Instant::now().checked_add(jittered(Duration::MAX)).is_some());
        }
    }
}
