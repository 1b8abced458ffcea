//! [`Tries`]: one command on its way through the cluster: redirections, lost connections, waits, all within its deadline.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::debug;
use valkey_rdma_resp::ServerErrorKind;

use super::core::{Core, Place};
use super::node::Node;
use super::redirect::Verdict;
use super::slot_map::SlotMap;
use crate::command::table::Access;
use crate::error::{ClusterError, Error, Fate, LostConnection, TimedOut};
use crate::link::Deadline;
use valkey_rdma_transport::sync::lock;

/// What a command has to reach.
#[derive(Clone)]
pub(super) enum Target {
    Slot(u16, Access),
    Node(Arc<Node>),
    /// A primary for as long as it is one, and then the node that has this slot of it.
    Primary(Arc<Node>, u16),
    /// Some primary.
    Any,
}

/// The state of one command, or of commands that go together.
///
/// Call [`next`](Self::next) for a place to try, and [`failed`](Self::failed) after a failure there, which returns `Ok` if
/// the command may be tried again.
pub(super) struct Tries<'a> {
    core: &'a Core,
    target: Target,
    deadline: Option<Deadline>,
    /// Names the command in errors.
    name: String,
    redirects: u32,
    /// How often it waited.
    pauses: u32,
    /// How often a connection was lost that may have run it.
    losses: u32,
    /// When the trouble began, without the time that the command ran; `None` again once a node has answered where to go.
    since: Option<Instant>,
    /// When the present try began.
    tried: Option<Instant>,
    /// The error that says it may have run, for commands that may run twice.
    may_have_run: Option<Error>,
    ask: Option<Arc<Node>>,
    /// The node that was chosen before it had a connection.
    chosen: Option<Arc<Node>>,
    /// True once a replica did not answer.
    primary_only: bool,
    /// True if it is sent on a connection of its own, whose end says nothing of the shared one.
    apart: bool,
    /// The node that the last such connection could not be made to.
    avoided: Option<Arc<Node>>,
}

impl<'a> Tries<'a> {
    pub(super) fn new(core: &'a Core, target: Target, deadline: Option<Deadline>, name: String) -> Self {
        Self {
            core,
            target,
            deadline,
            name,
            redirects: 0,
            pauses: 0,
            losses: 0,
            since: None,
            tried: None,
            may_have_run: None,
            ask: None,
            chosen: None,
            primary_only: false,
            apart: false,
            avoided: None,
        }
    }

    /// The tries are made on connections of their own.
    pub(super) fn apart(mut self) -> Self {
        self.go_apart();
        self
    }

    /// As [`apart`](Self::apart), in place.
    pub(super) fn go_apart(&mut self) {
        self.apart = true;
    }

    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// Begins with this node. Another choice would count as another turn.
    pub(super) fn begin_with(&mut self, node: Arc<Node>) {
        self.chosen = Some(node);
    }

    /// A try begins.
    pub(super) fn begins(&mut self) {
        self.tried = Some(Instant::now());
    }

    /// Finds a connection: waits for the node to be connected, or for a map that names another.
    pub(super) async fn next(&mut self) -> Result<Place, Error> {
        let found = self.find().await;
        self.begins();
        let found = match (found, self.deadline) {
            (Ok(place), Some(deadline)) if deadline.has_passed() => {
                let peer = place.node.name().clone();
                Err(TimedOut { peer, limit: deadline.limit, may_have_run: false }.into())
            }
            (found, _) => found,
        };
        found.map_err(|error| self.give_up(error))
    }

    async fn find(&mut self) -> Result<Place, Error> {
        loop {
            // Subscribed before the map is looked at.
            let mut changes = self.core.topology.changes();
            let asked = self.ask.take();
            let asking = asked.is_some();
            let node = match asked {
                Some(node) => Some(node),
                None => self.chosen.take().or_else(|| self.pick(&self.core.topology.map())),
            };
            let Some(node) = node else {
                let slot = match self.target {
                    Target::Slot(slot, _) | Target::Primary(_, slot) => Some(slot),
                    Target::Any | Target::Node(_) => None,
                };
                self.pause(ClusterError::Uncovered { slot }.into(), true).await?;
                continue;
            };
            if let Some(client) = node.live() {
                return Ok(Place { node, client, asking });
            }
            // A node that was first heard of after that would be connected to.
            if let Some(cause) = self.core.end() {
                return Err(node.ended_error(cause));
            }
            let patience = self.patience();
            let connected = tokio::select! {
                connected = node.connected() => connected,
                // Perhaps another node serves it now. If not, the attempt to connect goes on meanwhile.
                Ok(()) = changes.changed() => continue,
                // The attempt may have to wait for longer than the cluster takes to replace the node.
                never = self.core.request_refreshes() => match never {},
                () = until(patience) => Err(self.late(&node)),
            };
            match connected {
                Ok(client) => return Ok(Place { node, client, asking }),
                Err(error) => {
                    lock(&self.core.counters).lost += 1;
                    self.unreachable(error).await?;
                }
            }
        }
    }

    /// Judges a failure. `Ok`: try again. `repeatable` says that running it twice does no harm.
    pub(super) async fn failed(
        &mut self,
        place: &Place,
        error: Error,
        repeatable: bool,
    ) -> Result<(), Error> {
        if let (Error::Server(_), Some(since), Some(tried)) = (&error, &mut self.since, self.tried.take()) {
            *since += tried.elapsed();
        }
        let judged = self.judge(place, error, repeatable).await;
        judged.map_err(|error| self.give_up(error))
    }

    /// The error of a command that is not tried again. What it may have done before counts for more than why its last try
    /// was not sent.
    pub(super) fn give_up(&mut self, error: Error) -> Error {
        match error.fate() {
            Fate::NotSent => self.may_have_run.take().unwrap_or(error),
            Fate::MayHaveRun | Fate::Answered => error,
        }
    }

    async fn judge(&mut self, place: &Place, error: Error, repeatable: bool) -> Result<(), Error> {
        match error {
            Error::Server(ref reply) => match Verdict::of(reply, place.node.address()) {
                Verdict::Final => Err(error),
                // This passes. In any other state the same node answers the same again.
                Verdict::NotReady if reply.kind() == ServerErrorKind::Loading => {
                    self.not_ready(place, error).await
                }
                _ if matches!(self.target, Target::Node(_)) => Err(error),
                // Its keys do not choose the node.
                Verdict::Moved(..) | Verdict::Ask(_) if matches!(self.target, Target::Primary(..)) => {
                    Err(error)
                }
                Verdict::Moved(slot, address) => {
                    lock(&self.core.counters).moved += 1;
                    self.count_redirect(&error)?;
                    self.primary_only = true;
                    self.since = None;
                    if matches!(self.target, Target::Any) {
                        // It has keys after all.
                        self.target = Target::Slot(slot, Access::Write);
                    }
                    let node = self.core.topology.moved(slot, &address);
                    debug!(slot, to = %node.name(), "following MOVED");
                    self.core.request_refresh();
                    self.settle(error).await
                }
                Verdict::Ask(address) => {
                    lock(&self.core.counters).ask += 1;
                    self.count_redirect(&error)?;
                    self.since = None;
                    self.ask = Some(self.core.topology.node(&address));
                    self.settle(error).await
                }
                Verdict::TryAgain => {
                    lock(&self.core.counters).try_again += 1;
                    self.pause(error, false).await
                }
                Verdict::NotReady => self.not_ready(place, error).await,
            },
            Error::Lost(LostConnection { may_have_run, .. }) => {
                lock(&self.core.counters).lost += 1;
                if !self.apart || !place.client.is_whole() {
                    place.node.lost(&place.client);
                }
                self.core.request_refresh();
                if self.core.is_closed() || (may_have_run && !repeatable) {
                    return Err(error);
                }
                self.primary_only |= self.reads_replicas();
                if may_have_run {
                    self.losses += 1;
                    if self.losses > self.core.config.retries {
                        return Err(error);
                    }
                    self.may_have_run = Some(error);
                    // It was sent: what it waited for before is over.
                    self.since = None;
                    return Ok(());
                }
                // The first time it may just have been idle for too long.
                match self.since {
                    None => {
                        self.since = Some(Instant::now());
                        Ok(())
                    }
                    Some(_) => self.pause(error, true).await,
                }
            }
            Error::TimedOut(_) => {
                self.core.request_refresh();
                Err(error)
            }
            // A dedicated connection to the node could not be made.
            Error::Connect(_) => {
                self.avoided = Some(place.node.clone());
                lock(&self.core.counters).lost += 1;
                self.unreachable(error).await
            }
            _ => Err(error),
        }
    }

    /// True if the next try must follow ASKING.
    pub(super) fn must_ask(&self) -> bool {
        self.ask.is_some()
    }

    /// The node to try.
    pub(super) fn pick(&self, map: &SlotMap) -> Option<Arc<Node>> {
        match &self.target {
            Target::Slot(slot, access) => {
                let access = if self.primary_only { Access::Write } else { *access };
                self.core.choose(map, *slot, access).cloned()
            }
            Target::Node(node) => Some(node.clone()),
            Target::Primary(node, _) if map.is_primary(node) => Some(node.clone()),
            Target::Primary(_, slot) => self.core.choose(map, *slot, Access::Write).cloned(),
            Target::Any => self.core.choose_any(map, self.avoided.as_ref()).cloned(),
        }
    }

    /// True if it was sent to a replica, perhaps.
    fn reads_replicas(&self) -> bool {
        let reads = matches!(self.target, Target::Slot(_, Access::Read));
        reads && !self.primary_only && self.core.config.cluster.read_from.uses_replicas()
    }

    fn count_redirect(&mut self, error: &Error) -> Result<(), Error> {
        if self.redirects == self.core.config.cluster.max_redirects {
            return Err(self.redirected(error.clone()));
        }
        self.redirects += 1;
        Ok(())
    }

    /// Nodes need a moment to agree: the first redirections are followed at once, later ones after a pause.
    async fn settle(&mut self, error: Error) -> Result<(), Error> {
        if self.redirects <= FOLLOWED_AT_ONCE {
            return Ok(());
        }
        // A new map must not hurry this: redirections make maps.
        self.pause(error, false).await.map_err(|error| self.redirected(error))
    }

    /// Says of the last redirection that there were too many.
    fn redirected(&self, error: Error) -> Error {
        match error {
            Error::Server(last) => {
                let (command, count) = (self.name.clone(), self.redirects);
                ClusterError::Redirected { command, count, last }.into()
            }
            other => other,
        }
    }

    /// The node serves no commands of this kind now.
    async fn not_ready(&mut self, place: &Place, error: Error) -> Result<(), Error> {
        lock(&self.core.counters).not_ready += 1;
        self.core.request_refresh();
        if self.reads_replicas() {
            place.node.pass_over();
            self.primary_only = true;
            return Ok(());
        }
        self.pause(error, true).await
    }

    /// The node cannot be connected to.
    async fn unreachable(&mut self, error: Error) -> Result<(), Error> {
        if self.core.is_closed() {
            return Err(error);
        }
        self.core.request_refresh();
        if let Target::Node(_) = self.target {
            return Err(error);
        }
        if self.reads_replicas() {
            self.primary_only = true;
            return Ok(());
        }
        // Waiting does not change that.
        if matches!(&error, Error::Connect(refused) if refused.cause().refuses_user()) {
            return Err(error);
        }
        self.pause(error, true).await
    }

    /// Waits a little, and for a new map if that matters. Fails with `error`, which says that the last try has not run, if it
    /// has waited for too long.
    async fn pause(&mut self, error: Error, wake_on_change: bool) -> Result<(), Error> {
        let mut changes = self.core.topology.changes();
        if wake_on_change {
            self.core.request_refresh();
        }
        let patience = self.patience();
        if patience.is_some_and(|patience| patience <= Instant::now()) {
            return Err(self.may_have_run.take().unwrap_or(error));
        }
        let wait = FIRST_PAUSE.saturating_mul(1 << self.pauses.min(MOST_DOUBLINGS));
        let wait = wait.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.pauses += 1;
        tokio::select! {
            () = sleep(wait) => Ok(()),
            Ok(()) = changes.changed(), if wake_on_change => Ok(()),
            // A try with no time left would only blur what happened.
            () = until(patience) => Err(self.may_have_run.take().unwrap_or(error)),
        }
    }

    /// Until when it may wait for the cluster: by its deadline, and not longer than commands wait while disconnected.
    fn patience(&mut self) -> Option<Instant> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let offline = self.core.config.offline_timeout.and_then(|limit| since.checked_add(limit));
        self.deadline.map(|deadline| deadline.at).into_iter().chain(offline).min()
    }

    /// The command waited for too long for this node.
    fn late(&self, node: &Node) -> Error {
        // Why it cannot be connected to says more than that it could not in time.
        node.last_error().unwrap_or_else(|| {
            let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
            let due = self.deadline.filter(|deadline| deadline.at <= Instant::now());
            let limit = due.map_or(waited, |deadline| deadline.limit);
            TimedOut { peer: node.name().clone(), limit, may_have_run: false }.into()
        })
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// This many redirections in a row are normal while slots move.
const FOLLOWED_AT_ONCE: u32 = 3;
/// The longest first wait.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Waits grow up to 640 ms.
const MOST_DOUBLINGS: u32 = 6;
