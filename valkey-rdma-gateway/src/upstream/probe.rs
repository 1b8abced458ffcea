//! [`Probe`]: asks a server that no client uses whether it is there.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Attempts to reach a server, one at a time. Those who ask meanwhile, or soon after, get the same answer.
#[derive(Default)]
pub(crate) struct Probe(Arc<Mutex<Option<(Instant, Answer)>>>);

/// Why the server cannot be reached.
type Answer = Result<(), Arc<str>>;

impl Probe {
    /// The answer of an attempt: the one that runs, the last one if it has ended within [`KEPT`], or else a new one. An attempt that
    /// lasts longer than `limit` goes on, for those who ask later: to drop an RDMA connection in its middle may harm the server.
    pub(crate) async fn ask<A>(&self, limit: Duration, start: impl FnOnce() -> A + Send + 'static) -> Answer
    where
        A: Future<Output = Result<(), String>> + Send,
    {
        let last = self.0.clone();
        let answer = tokio::spawn(async move {
            let mut last = last.lock().await;
            if let Some((at, answer)) = &*last
                && at.elapsed() < KEPT
            {
                return answer.clone();
            }
            let answer = start().await.map_err(Arc::from);
            *last = Some((Instant::now(), answer.clone()));
            answer
        });
        match timeout(limit, answer).await {
            Ok(ended) => ended.unwrap_or_else(|_| Err("the attempt to reach it has failed".into())),
            Err(_) => Err(format!("it did not answer within {limit:?}").into()),
        }
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
        let refuses = move || {
            let attempts = attempts.clone();
            async move {
                sleep(Duration::from_millis(10)).await;
                Err(format!("refused {}", attempts.fetch_add(1, Ordering::Relaxed)))
            }
        };
        let answers = tokio::join!(probe.ask(LIMIT, refuses.clone()), probe.ask(LIMIT, refuses.clone()));
        assert_eq!(answers, (Err("refused 0".into()), Err("refused 0".into())));
        advance(KEPT / 2).await;
        assert_eq!(probe.ask(LIMIT, refuses.clone()).await, Err("refused 0".into()));
        advance(KEPT / 2).await;
        assert_eq!(probe.ask(LIMIT, refuses).await, Err("refused 1".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_lasts_is_not_repeated() {
        let (probe, answered) = (Probe::default(), Arc::new(Notify::new()));
        let waiting = answered.clone();
        let waits = move || async move {
            waiting.notified().await;
            Ok(())
        };
        for _ in 0..3 {
            assert_eq!(probe.ask(LIMIT, waits.clone()).await, Err("it did not answer within 2s".into()));
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
