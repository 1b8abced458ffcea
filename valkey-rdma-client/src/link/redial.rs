//! [`Redialer`]: when a connection is made again. Everything that connects more than once asks it, so this is the one policy.
//!
//! Users differ in what they do while it waits, and in nothing else:
//!
//! | user | file | until the next connection |
//! |---|---|---|
//! | the shared connection | `link/task.rs` | commands wait in the queue |
//! | connections beside it | `server/connect.rs` | the caller waits, and lets the shared connection try first |
//! | a subscriber, of a server or of a slot | `pubsub/task/offline.rs` | changes of subscriptions wait, events are delivered |
//! | a Sentinel's reports | `sentinel/follow.rs` | nothing waits |
//! | a node of a cluster | `cluster/node.rs` | commands look for another node; without one, no attempt begins |

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use valkey_rdma_resp::ServerErrorKind;

use super::connect::{ConnectDeadline, Connector};
use super::handshake::Returns;
use super::raw::RawConnection;
use crate::command::Command;
use crate::config::{Backoff, Config, STABLE_AFTER};
use crate::error::{ConnectCause, ConnectError, LostCause};
use crate::stats::Purpose;

/// The longest wait before a server that reads its data is asked again, which costs little.
const LONGEST_WAIT_FOR_DATA: Duration = Duration::from_millis(500);

/// Connections that may end soon before attempts are no longer hurried.
const MOST_SHORT_LIVED: u32 = 1;

/// Makes one connection again, however often it is lost.
///
/// - Waits grow with every attempt that fails, and with every connection that ends within [`STABLE_AFTER`]: a server that ends each
///   connection at once would otherwise get thousands of them.
/// - While something waits for the connection, no wait is longer than half of its patience, so that it meets an attempt before it fails.
/// - When another connection finds the server back, the wait ends. It does not if several connections in a row were short-lived: two
///   such connections would drive each other.
/// - A server that reads its data is asked again on the same connection, twice a second or more often.
/// - If another server is the one to talk to, the first attempt begins at once.
pub(crate) struct Redialer {
    backoff: Backoff,
    /// No wait is longer than this while something waits for the connection.
    longest: Option<Duration>,
    /// Changes when another connection was made.
    server_is_back: watch::Receiver<()>,
    /// Attempts that failed since the last connection, and short-lived connections before it.
    failures: u32,
    /// As `failures`, before the last connection was made.
    failures_before: u32,
    /// Connections in a row that were short-lived.
    short_lived: u32,
    /// When the connection was made, if there is one.
    born: Option<Instant>,
    /// No attempt begins before.
    not_before: Option<Instant>,
    /// A connection to a server that reads its data.
    loading: Option<RawConnection>,
    /// True if the first attempt after a stable connection does not wait: its loss may be old.
    on_demand: bool,
}

impl Redialer {
    /// Without a connection yet: the first attempt does not wait. `server_is_back` changes when another connection was made.
    pub(crate) fn new(backoff: Backoff, config: &Config, server_is_back: watch::Receiver<()>) -> Self {
        Self {
            backoff,
            longest: config.patience().map(|patience| backoff.step(patience)),
            server_is_back,
            failures: 0,
            failures_before: 0,
            short_lived: 0,
            born: None,
            not_before: None,
            loading: None,
            on_demand: false,
        }
    }

    /// For connections of this connector. `None`: the program has disabled reconnecting.
    pub(crate) fn of(connector: &Connector) -> Option<Self> {
        let back = connector.server_is_back.subscribe();
        Some(Self::new(connector.config.reconnect?, &connector.config, back))
    }

    /// For a connection that is made when a command needs it: its loss was not noticed before, perhaps.
    pub(crate) fn on_demand(self) -> Self {
        Self { on_demand: true, ..self }
    }

    /// Waits for the next attempt, and makes it. `is_awaited` says whether something waits for the connection that fails without it.
    ///
    /// Dropping the future ends the attempt, which then does not count.
    pub(crate) async fn next<T, E>(
        &mut self,
        is_awaited: impl Fn() -> bool,
        connect: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.pause(is_awaited).await;
        self.attempt(connect).await
    }

    /// As [`next`](Self::next), to a server that has its data. One that has not is a failure.
    pub(crate) async fn next_loaded(
        &mut self,
        is_awaited: impl Fn() -> bool,
        connector: &Connector,
        purpose: Purpose,
    ) -> Result<RawConnection, ConnectError> {
        self.pause(is_awaited).await;
        self.attempt_loaded(connector, purpose).await
    }

    /// Makes an attempt now.
    pub(crate) async fn attempt<T, E>(
        &mut self,
        connect: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.begins();
        let outcome = connect.await;
        self.ended(&outcome);
        outcome
    }

    /// As [`attempt`](Self::attempt), to a server that has its data.
    pub(crate) async fn attempt_loaded(
        &mut self,
        connector: &Connector,
        purpose: Purpose,
    ) -> Result<RawConnection, ConnectError> {
        self.begins();
        let outcome = connector.connect_loaded(purpose, &mut self.loading).await;
        self.ended(&outcome);
        outcome
    }

    /// Waits until the next attempt may begin.
    pub(crate) fn pause<F: Fn() -> bool>(&self, is_awaited: F) -> impl Future<Output = ()> + use<F> {
        let (end, longest) = (self.not_before, self.longest);
        let (mut server_is_back, may_hurry) = (self.server_is_back.clone(), self.may_hurry());
        async move {
            let Some(end) = end else { return };
            loop {
                let part = longest.and_then(|longest| Instant::now().checked_add(longest));
                let part = part.map_or(end, |part| part.min(end));
                tokio::select! {
                    () = sleep_until(part) => {}
                    Ok(()) = server_is_back.changed(), if may_hurry => return,
                }
                if part == end || is_awaited() {
                    return;
                }
            }
        }
    }

    /// An attempt begins. What was known of the server before counts no longer.
    pub(crate) fn begins(&mut self) {
        self.server_is_back.mark_unchanged();
    }

    fn ended<T, E>(&mut self, outcome: &Result<T, E>) {
        match outcome {
            Ok(_) => self.connected(),
            Err(_) => self.failed(),
        }
    }

    /// The connection is made.
    pub(crate) fn connected(&mut self) {
        self.born = Some(Instant::now());
        self.not_before = None;
        self.failures_before = std::mem::replace(&mut self.failures, self.short_lived);
    }

    /// The attempt has failed.
    pub(crate) fn failed(&mut self) {
        self.failed_while(self.loading.is_some());
    }

    /// The attempt has failed. `is_loading`: because the server reads its data.
    pub(crate) fn failed_while(&mut self, is_loading: bool) {
        let wait = self.backoff.wait(self.failures);
        let wait = if is_loading { wait.min(LONGEST_WAIT_FOR_DATA) } else { wait };
        self.not_before = Some(after(wait));
        self.failures = self.failures.saturating_add(1);
    }

    /// The connection is lost.
    pub(crate) fn lost(&mut self) {
        self.server_is_back.mark_unchanged();
        if self.born.take().is_some_and(|born| born.elapsed() > STABLE_AFTER) {
            (self.failures, self.short_lived, self.not_before) = (0, 0, None);
            if self.on_demand {
                return;
            }
        } else {
            self.short_lived = self.short_lived.saturating_add(1);
            self.failures = self.short_lived;
        }
        self.not_before = Some(after(self.backoff.wait(self.failures)));
    }

    /// The connection was given up, because another server is the one to talk to.
    pub(crate) fn moved(&mut self) {
        self.lost();
        if self.short_lived == 0 {
            self.not_before = None;
        }
    }

    /// The server sent the subscriptions elsewhere: the attempt goes on there.
    pub(crate) fn redirected(&mut self) {
        if self.born.take().is_some_and(|born| born.elapsed() > STABLE_AFTER) {
            (self.failures, self.short_lived) = (0, 0);
        } else {
            self.failures = self.failures_before;
        }
    }

    /// Leaves the attempts to another connection: the next one begins when that finds the server back.
    pub(crate) fn leave_to_another(&mut self) {
        self.not_before = Some(after(FOREVER));
    }

    /// True if another connection has found the server back since the last attempt began.
    pub(crate) fn has_news(&self) -> bool {
        self.server_is_back.has_changed().unwrap_or_default()
    }

    /// True if the server was reached, and reads its data.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Attempts that failed since the last connection, and short-lived connections before it.
    pub(crate) fn attempts(&self) -> u32 {
        self.failures
    }

    /// Until when the next attempt waits, unless something hurries it.
    pub(crate) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    fn may_hurry(&self) -> bool {
        self.short_lived <= MOST_SHORT_LIVED
    }
}

impl Connector {
    /// Connects, and asks with PING whether the server has its data. If it has not, that is the failure, and the connection is
    /// left in `loading`: the next call asks on it again. Only a server with its data counts as [back](Connector::server_is_back).
    ///
    /// Any other error will do, NOPERM too.
    async fn connect_loaded(
        &self,
        purpose: Purpose,
        loading: &mut Option<RawConnection>,
    ) -> Result<RawConnection, ConnectError> {
        let mut raw = match loading.take() {
            Some(raw) => raw,
            None => self.connect_quietly(purpose).await?,
        };
        let deadline = ConnectDeadline::of(&self.endpoint);
        let replies = match timeout_at(deadline.at, raw.exchange(&[Command::new("PING")])).await {
            Ok(Ok(replies)) => replies,
            Ok(Err(cause)) => return Err(self.failure(ConnectCause::Lost(Arc::new(cause)))),
            Err(_) => return Err(self.failure(deadline.passed(true))),
        };
        let reply = replies.into_iter().next();
        if let Some(Err(other)) = reply.as_ref().map(|reply| Returns::Pong.check(reply)) {
            let cause = LostCause::OutOfStep(other.in_reply_to("PING"));
            return Err(self.failure(ConnectCause::Lost(Arc::new(cause))));
        }
        match reply {
            Some(Err(error)) if error.kind() == ServerErrorKind::Loading => {
                // Another server may become the primary meanwhile.
                if self.locator().is_none() {
                    *loading = Some(raw);
                }
                Err(self.failure(ConnectCause::Rejected(error)))
            }
            _ => {
                self.server_is_back.send_replace(());
                Ok(raw)
            }
        }
    }
}

/// This long from now. Longer waits than a clock can represent are cut.
fn after(wait: Duration) -> Instant {
    Instant::now() + wait.min(FOREVER)
}

/// Stands for no limit.
const FOREVER: Duration = Duration::from_secs(20 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy, and the sender that says that the server is back.
    fn redialer(backoff: Backoff) -> (Redialer, watch::Sender<()>) {
        let back = watch::Sender::default();
        (Redialer::new(backoff, &Config::default(), back.subscribe()), back)
    }

    /// Makes connections with these lives in seconds.
    async fn after_lives_of(lives: &[u64]) -> Redialer {
        let (mut redialer, _back) = redialer(Backoff::default());
        for seconds in lives {
            redialer.connected();
            tokio::time::advance(Duration::from_secs(*seconds)).await;
            redialer.lost();
        }
        redialer
    }

    /// How long the next attempt waits, if this waits for it.
    async fn waits(redialer: &Redialer, is_awaited: bool) -> Duration {
        let begin = Instant::now();
        redialer.pause(|| is_awaited).await;
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_end_at_once_wait_longer_each_time_until_one_is_stable() {
        assert_eq!(after_lives_of(&[0, 0, 0]).await.failures, 3);
        assert_eq!(after_lives_of(&[0, 0, 5]).await.failures, 0);
        assert_eq!(after_lives_of(&[5, 0]).await.failures, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_that_fail_wait_longer_each_time_until_one_connects() {
        let (mut redialer, _back) = redialer(Backoff::default());
        for failures in 1..100 {
            redialer.failed();
            assert_eq!(redialer.failures, failures);
        }
        redialer.connected();
        assert_eq!((redialer.failures, redialer.not_before()), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stable_connection_that_is_made_on_demand_is_replaced_without_a_wait() {
        let mut redialer = redialer(Backoff::default()).0.on_demand();
        redialer.failed();
        assert!(redialer.not_before().is_some());
        redialer.connected();
        assert_eq!(redialer.not_before(), None);
        tokio::time::advance(Duration::from_secs(5)).await;
        redialer.lost();
        assert_eq!(redialer.not_before(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn another_server_is_connected_to_without_a_wait_unless_it_ends_connections_at_once() {
        let (mut redialer, _back) = redialer(Backoff::default());
        redialer.connected();
        tokio::time::advance(Duration::from_secs(5)).await;
        redialer.moved();
        assert_eq!(redialer.not_before(), None);
        redialer.connected();
        redialer.moved();
        assert!(redialer.not_before().is_some());
    }

    /// As when two nodes of a cluster name each other.
    #[tokio::test(start_paused = true)]
    async fn connections_that_only_redirect_do_not_shorten_the_waits() {
        let (mut redialer, _back) = redialer(Backoff::default());
        for failures in 1..10 {
            for _ in 0..3 {
                redialer.connected();
                redialer.redirected();
            }
            redialer.failed();
            assert_eq!(redialer.failures, failures);
        }
        redialer.connected();
        tokio::time::advance(Duration::from_secs(5)).await;
        redialer.redirected();
        assert_eq!((redialer.failures, redialer.not_before()), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_server_that_keeps_its_connections_is_tried_early() {
        let rare = Backoff::default().first(Duration::from_secs(3600)).max(Duration::from_secs(3600));
        let (mut redialer, back) = redialer(rare);
        redialer.failed();
        back.send_replace(());
        assert_eq!(waits(&redialer, false).await, Duration::ZERO);
        redialer.begins();
        redialer.failed();
        assert_ne!(waits(&redialer, false).await, Duration::ZERO, "the news is used up");
        for _ in 0..2 {
            redialer.connected();
            redialer.lost();
        }
        back.send_replace(());
        assert_ne!(waits(&redialer, false).await, Duration::ZERO, "two ended at once");
        redialer.connected();
        tokio::time::advance(Duration::from_secs(5)).await;
        redialer.lost();
        back.send_replace(());
        assert_eq!(waits(&redialer, false).await, Duration::ZERO);
    }

    /// However rare attempts are without something that waits.
    #[tokio::test(start_paused = true)]
    async fn what_waits_meets_an_attempt_before_it_fails() {
        let (mut redialer, _back) = redialer(Backoff::default().max(Duration::from_secs(24 * 3600)));
        let patience = Config::default().patience().expect("a limit");
        assert_eq!(waits(&redialer, true).await, Duration::ZERO, "at once");
        for _ in 0..40 {
            redialer.failed();
            // Timers fire within the next millisecond.
            assert!(waits(&redialer, true).await <= patience / 2 + Duration::from_millis(1));
            redialer.failed();
            let until = redialer.not_before().expect("a wait");
            redialer.pause(|| false).await;
            assert!(Instant::now() >= until);
        }
    }
}
