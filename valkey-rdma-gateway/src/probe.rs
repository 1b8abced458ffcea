//! [`Probe`]: asks a server that no client uses whether it is there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use valkey_rdma_transport::sync::lock;

/// Attempts to reach a server, one at a time. Those who ask meanwhile, or soon after, get the same answer.
#[derive(Default)]
pub(crate) struct Probe(Mutex<Option<Attempt>>);

/// An attempt, which runs in its own task. Once it has ended: when, and its answer.
type Attempt = watch::Receiver<Option<(Instant, Answer)>>;

/// Why the server cannot be reached.
type Answer = Result<(), Arc<str>>;

impl Probe {
    /// The answer of an attempt: the one that runs, the last one if it has ended within [`KEPT`], or else a new one. An attempt that
    /// lasts longer than `limit` goes on, for those who ask later: to drop an RDMA connection in its middle may harm the server.
    pub(crate) async fn ask<A>(&self, limit: Duration, start: impl FnOnce() -> A) -> Answer
    where
        A: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut attempt = self.attempt(start);
        let ended = timeout(limit, attempt.wait_for(Option::is_some)).await;
        match ended {
            Ok(Ok(ended)) => ended.as_ref().map_or(Ok(()), |(_, answer)| answer.clone()),
            Ok(Err(_)) => Err("the attempt to reach it has failed".into()),
            Err(_) => Err(format!("it did not answer within {limit:?}").into()),
        }
    }

    fn attempt<A>(&self, start: impl FnOnce() -> A) -> Attempt
    where
        A: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut last = lock(&self.0);
        if let Some(attempt) = &*last
            && is_current(attempt)
        {
            return attempt.clone();
        }
        let (sender, attempt) = watch::channel(None);
        let work = start();
        tokio::spawn(async move {
            let answer = work.await.map_err(Arc::from);
            sender.send_replace(Some((Instant::now(), answer)));
        });
        last.insert(attempt).clone()
    }
}

/// Whether an attempt runs, or has ended a short time ago.
fn is_current(attempt: &Attempt) -> bool {
    match &*attempt.borrow() {
        Some((at, _)) => at.elapsed() < KEPT,
        // Without its task it has panicked.
        None => attempt.has_changed().is_ok(),
    }
}

/// How long an answer holds. A server that cannot be reached is tried once in this time, however many probes there are.
const KEPT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;
    use tokio::time::{advance, sleep};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_together_share_an_attempt_and_its_answer_for_a_second() {
        let (probe, attempts) = (Probe::default(), Arc::new(AtomicU32::new(0)));
        let refuses = || {
            let attempts = attempts.clone();
            async move {
                sleep(Duration::from_millis(10)).await;
                Err(format!("refused {}", attempts.fetch_add(1, Ordering::Relaxed)))
            }
        };
        let answers = tokio::join!(probe.ask(LIMIT, refuses), probe.ask(LIMIT, refuses));
        assert_eq!(answers, (Err("refused 0".into()), Err("refused 0".into())));
        advance(KEPT / 2).await;
        assert_eq!(probe.ask(LIMIT, refuses).await, Err("refused 0".into()));
        advance(KEPT / 2).await;
        assert_eq!(probe.ask(LIMIT, refuses).await, Err("refused 1".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_lasts_is_not_repeated() {
        let (probe, answered) = (Probe::default(), Arc::new(Notify::new()));
        let waits = || {
            let answered = answered.clone();
            async move {
                answered.notified().await;
                Ok(())
            }
        };
        for _ in 0..3 {
            assert_eq!(probe.ask(LIMIT, waits).await, Err("it did not answer within 2s".into()));
        }
        answered.notify_waiters();
        assert_eq!(probe.ask(LIMIT, waits).await, Ok(()));
    }

    #[tokio::test]
    async fn an_attempt_that_panics_is_repeated() {
        let probe = Probe::default();
        let broken = || async { panic!("on purpose") };
        assert!(probe.ask(LIMIT, broken).await.is_err());
        assert_eq!(probe.ask(LIMIT, || async { Ok(()) }).await, Ok(()));
    }
}
