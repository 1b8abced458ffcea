//! [`Running`]: a job in progress on all connections, and what it has measured at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use valkey_rdma_program::Interrupt;
use valkey_rdma_transport::sync::lock;

use super::job::Run;
use super::share::Share;
use super::thread::Part;
use super::usage::Usage;
use crate::measure::{Counters, Fault, FaultKind, Latencies, Tally, TestResult};

/// A job in progress.
#[derive(Debug)]
pub(crate) struct Running {
    run: Arc<Run>,
    shares: Vec<Arc<Share>>,
    parts: Vec<oneshot::Receiver<Part>>,
    interrupt: Interrupt,
}

/// Reads the state of a job in progress.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    run: Arc<Run>,
    shares: Vec<Arc<Share>>,
}

impl Watch {
    /// Replies so far.
    pub(crate) fn done(&self) -> u64 {
        self.shares.iter().map(|share| share.done.load(Ordering::Relaxed)).sum()
    }

    /// How far the job is, from 0 to 1.
    pub(crate) fn progress(&self) -> f64 {
        self.run.progress(self.done())
    }

    /// How long the job has been running.
    pub(crate) fn elapsed(&self) -> Duration {
        self.run.now()
    }

    /// For how long there has been no connection, and for how long the job waits for one; `None` if one is up.
    pub(crate) fn outage(&self) -> Option<(Duration, Duration)> {
        let begin = self.run.outages.present()?;
        Some((self.elapsed().saturating_sub(begin), self.run.job.patience))
    }

    /// What was measured so far. Costs the threads a moment.
    pub(crate) fn tally(&self) -> Tally {
        let mut all = Tally::default();
        for share in &self.shares {
            let tally = lock(&share.tally).clone();
            all.merge(tally);
        }
        all
    }
}

impl Running {
    /// A job that the threads of `parts` have begun.
    pub(super) fn new(
        run: Arc<Run>,
        shares: Vec<Arc<Share>>,
        parts: Vec<oneshot::Receiver<Part>>,
        interrupt: Interrupt,
    ) -> Self {
        Self { run, shares, parts, interrupt }
    }

    /// A way to look at it.
    pub(crate) fn watch(&self) -> Watch {
        Watch { run: Arc::clone(&self.run), shares: self.shares.clone() }
    }

    /// Waits until the last reply has come, the server is gone for good, or the user interrupts.
    pub(crate) async fn finish(self) -> TestResult {
        let (mut counters, mut usage) = (None::<Counters>, Usage::default());
        let mut threads_lost = 0;
        for part in self.parts {
            let Ok(part) = part.await else {
                // It panicked, and its panic has been printed.
                threads_lost += 1;
                continue;
            };
            usage.add(part.usage);
            if let Some(part) = part.counters {
                counters.get_or_insert_default().add(part);
            }
        }
        let mut tally = merged(&self.shares);
        let job = &self.run.job;
        let left = self.run.left();
        if left > 0 && !self.interrupt.is_asked() && !job.fail_fast {
            let detail = format!("{left} requests were not sent, because the server sent no more replies");
            tally.faults.add_many(Fault { kind: FaultKind::NotSent, detail }, left);
        }
        let overdue: u64 = self.shares.iter().map(|share| share.overdue(&self.run)).sum();
        if overdue > 0 && !self.interrupt.is_asked() && !job.fail_fast {
            let detail =
                format!("{overdue} requests were due and not sent: the server did not keep up with the rate");
            tally.faults.add_many(Fault { kind: FaultKind::NotSent, detail }, overdue);
        }
        if threads_lost > 0 {
            let detail =
                format!("{threads_lost} threads ended before the test did: what they measured is not whole");
            tally.faults.add_many(Fault { kind: FaultKind::ThreadLost, detail }, threads_lost);
        }
        let mut connects = Latencies::default();
        self.shares.iter().for_each(|share| connects.merge(&lock(&share.connects)));
        let (outages, lost) = self.run.outages.so_far();
        TestResult {
            title: job.script.title.clone(),
            parts: job.script.steps().iter().map(|step| step.title().to_owned()).collect(),
            elapsed: tally
                .last
                .unwrap_or_else(|| if self.interrupt.is_asked() { Duration::ZERO } else { self.run.now() }),
            pace: job.pace,
            tally,
            counters,
            usage,
            server_cpu: None,
            outages,
            lost,
            connects,
            gave_up: self.run.gave_up(),
        }
    }
}

fn merged(shares: &[Arc<Share>]) -> Tally {
    let mut all = Tally::default();
    for share in shares {
        let tally = lock(&share.tally).clone();
        all.merge(tally);
    }
    all
}
