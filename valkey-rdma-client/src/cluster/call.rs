//! [`ClusterCall`]: one command on its way through the cluster, with all its tries, within its deadline. What follows a failed try stands in
//! [`redirection`], and whose words an error reply has in [`program`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use valkey_rdma_resp::Value;

use super::core::{Core, Place};
use super::node::Node;
use super::slot_map::SlotMap;
use crate::command::table::Access;
use crate::command::{Command, Commands};
use crate::error::{ClusterError, Error, Fate, TimedOut};
use crate::link::{Deadline, Failed};
use crate::runtime::until;
use crate::stats::Purpose;
use valkey_rdma_transport::sync::lock;

mod program;
mod redirection;

use self::program::Program;
pub(super) use self::redirection::Redirection;

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

impl Core {
    /// Sends a command to the node of its slot. Nearly all commands need no more than this: the map names a node, the node has a
    /// connection, and the reply is the answer. Everything else is boxed: the smaller this future is, the less it costs to await it.
    pub(super) async fn send_to_slot(
        &self,
        command: Command,
        slot: u16,
        access: Access,
        limit: Option<Duration>,
    ) -> Result<Value, Error> {
        let deadline = limit.and_then(Deadline::after);
        match self.place(slot, access) {
            Ok(place) => match place.client.send(Commands::One(command), deadline).await.last() {
                Ok(value) => Ok(value),
                Err(failed) => {
                    let target = Target::Slot(slot, access);
                    self.send_after_failure(place, failed, target, deadline).boxed().await
                }
            },
            Err(node) => {
                let mut call = ClusterCall::of(self, &command, Target::Slot(slot, access), deadline);
                call.chosen = node;
                call.send(Box::new(command)).boxed().await
            }
        }
    }

    /// Sends a command again whose first try has failed, if it may be.
    async fn send_after_failure(
        &self,
        place: Place,
        failed: Failed,
        target: Target,
        deadline: Option<Deadline>,
    ) -> Result<Value, Error> {
        let Failed { error, command, .. } = failed;
        let Some(command) = command else {
            self.note_failure(&place, &error);
            return Err(error);
        };
        let mut call = ClusterCall::of(self, &command, target, deadline);
        call.failed(&place, error).await?;
        call.send(command).await
    }

    /// Sends a command to its target until a node answers it.
    pub(super) async fn send_to(
        &self,
        target: Target,
        command: Box<Command>,
        deadline: Option<Deadline>,
    ) -> Result<Value, Error> {
        ClusterCall::of(self, &command, target, deadline).send(command).await
    }
}

/// The state of one command, or of commands that go together.
///
/// Call [`next`](Self::next) for a place to try, and [`failed`](Self::failed) after a failure there, which returns `Ok` if
/// the command may be tried again. [`run`](Self::run) does both.
pub(super) struct ClusterCall<'a> {
    core: &'a Core,
    target: Target,
    deadline: Option<Deadline>,
    /// Names the command in errors.
    name: String,
    /// `None`: the server itself answers the command.
    program: Option<Program>,
    /// True if running it twice does no harm.
    is_repeatable: bool,
    /// True if it is sent on a connection of its own, whose end says nothing of the shared one.
    is_dedicated: bool,
    redirects: u32,
    /// How often it waited.
    pauses: u32,
    /// How often a connection was lost that may have run it.
    losses: u32,
    pub(super) trouble: Trouble,
    /// The error that says it may have run, for commands that may run twice.
    may_have_run: Option<Error>,
    /// The node that ASK names: this once, the next try goes there.
    ask: Option<Arc<Node>>,
    /// The node that was chosen before it had a connection. Another choice would count as another turn.
    chosen: Option<Arc<Node>>,
    /// True once a replica did not answer.
    primary_only: bool,
    /// The node that the last dedicated connection could not be made to.
    avoided: Option<Arc<Node>>,
}

impl<'a> ClusterCall<'a> {
    /// Must not run twice, and goes on shared connections.
    pub(super) fn new(
        core: &'a Core,
        target: Target,
        deadline: Option<Deadline>,
        name: impl Into<String>,
    ) -> Self {
        Self {
            core,
            target,
            deadline,
            name: name.into(),
            program: None,
            is_repeatable: false,
            is_dedicated: false,
            redirects: 0,
            pauses: 0,
            losses: 0,
            trouble: Trouble::default(),
            may_have_run: None,
            ask: None,
            chosen: None,
            primary_only: false,
            avoided: None,
        }
    }

    /// The call of this command, which may run twice if the command may.
    pub(super) fn of(core: &'a Core, command: &Command, target: Target, deadline: Option<Deadline>) -> Self {
        let call = Self::new(core, target, deadline, command.name()).repeatable(command.may_run_twice());
        Self { program: Program::of(core, command), ..call }
    }

    /// Whether running it twice does no harm.
    pub(super) fn repeatable(self, is_repeatable: bool) -> Self {
        Self { is_repeatable, ..self }
    }

    /// The tries are made on connections of their own.
    pub(super) fn dedicated(self) -> Self {
        Self { is_dedicated: true, ..self }
    }

    /// Tries at one place after the other, until a try succeeds or its failure is final.
    pub(super) async fn run<T, F: Future<Output = Result<T, Error>>>(
        mut self,
        attempt: impl Fn(Place) -> F,
    ) -> Result<T, Error> {
        loop {
            let place = self.next().await?;
            match attempt(place.clone()).await {
                Ok(value) => return Ok(value),
                Err(error) => self.failed(&place, error).await?,
            }
        }
    }

    /// Sends the command until a node answers it.
    pub(super) async fn send(self, command: Box<Command>) -> Result<Value, Error> {
        self.answer(command).await.map(|(_, reply)| reply)
    }

    /// As [`send`](Self::send), with the node that has answered. A command that must not wait behind others goes on a connection of its own.
    pub(super) async fn answer(mut self, mut command: Box<Command>) -> Result<(Arc<Node>, Value), Error> {
        let overtakes = command.overtakes();
        self.is_dedicated |= overtakes;
        loop {
            let place = self.next().await?;
            let sent = match overtakes {
                false => place.send(*command, self.deadline).await,
                true => self.overtake(&place, command).await,
            };
            let Failed { error, command: back, .. } = match sent {
                Ok(value) => return Ok((place.node, value)),
                Err(failed) => failed,
            };
            let Some(back) = back else {
                self.core.note_failure(&place, &error);
                return Err(self.give_up(error));
            };
            command = back;
            self.failed(&place, error).await?;
        }
    }

    async fn overtake(&self, place: &Place, command: Box<Command>) -> Result<Value, Failed> {
        let limited = within(&command, self.deadline);
        let answer = async { self.core.checkout(place, Purpose::Overtaking).await?.exchange(limited).await };
        answer.await.map_err(|error| Failed { command: Some(command), ..error.into() })
    }

    /// Finds a connection: waits for the node to be connected, or for a map that names another.
    pub(super) async fn next(&mut self) -> Result<Place, Error> {
        let found = self.find().await;
        self.trouble.try_begins();
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
                if self.core.is_closed() {
                    return Err(self.core.closed_error());
                }
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
                // The error is that of the next look.
                () = self.core.ended() => continue,
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

    /// True if the next try must follow ASKING.
    pub(super) fn must_ask(&self) -> bool {
        self.ask.is_some()
    }

    /// Until when it may wait for the cluster: by its deadline, and not longer than commands wait while disconnected.
    fn patience(&mut self) -> Option<Instant> {
        let since = self.trouble.begin();
        let offline = self.core.config.offline_timeout.and_then(|limit| since.checked_add(limit));
        self.deadline.map(|deadline| deadline.at).into_iter().chain(offline).min()
    }

    /// The command waited for too long for this node.
    fn late(&self, node: &Node) -> Error {
        // Why it cannot be connected to says more than that it could not in time.
        node.last_error().unwrap_or_else(|| {
            let due = self.deadline.filter(|deadline| deadline.at <= Instant::now());
            let limit = due.map_or_else(|| self.trouble.lasted(), |deadline| deadline.limit);
            TimedOut { peer: node.name().clone(), limit, may_have_run: false }.into()
        })
    }

    /// The error of a command that is not tried again. What it may have done before counts for more than why its last try
    /// was not sent.
    pub(super) fn give_up(&mut self, error: Error) -> Error {
        match error.fate() {
            Fate::NotSent => self.may_have_run.take().unwrap_or(error),
            Fate::MayHaveRun | Fate::Answered => error,
        }
    }
}

/// The command of a try on a dedicated connection: it has what is left of the time of its call. Connecting has the endpoint's timeout in
/// addition.
pub(super) fn within(command: &Command, deadline: Option<Deadline>) -> Command {
    match deadline {
        None => command.clone(),
        Some(deadline) => command.clone().timeout(deadline.at.saturating_duration_since(Instant::now())),
    }
}

/// How long a command has waited for the cluster. A command may wait for [`offline_timeout`](crate::Config::offline_timeout) from its first
/// failure on; but the time in which a node ran a try, and then answered it, is not time in which the command waited.
#[derive(Default)]
pub(super) struct Trouble {
    /// The first failure, moved forward by the time that later tries ran. `None` while nothing is wrong.
    began: Option<Instant>,
    try_began: Option<Instant>,
}

impl Trouble {
    /// A try begins.
    pub(super) fn try_begins(&mut self) {
        self.try_began = Some(Instant::now());
    }

    /// A node has answered the try, with an error.
    fn try_answered(&mut self) {
        if let (Some(began), Some(try_began)) = (&mut self.began, self.try_began.take()) {
            *began += try_began.elapsed();
        }
    }

    /// Something is wrong, if it was not before. Returns since when.
    fn begin(&mut self) -> Instant {
        *self.began.get_or_insert_with(Instant::now)
    }

    /// A node has said where to go, or has taken the command.
    fn end(&mut self) {
        self.began = None;
    }

    fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    fn lasted(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_try_has_what_is_left_of_the_time_of_its_call() {
        let command = Command::new("WATCH").timeout(Duration::from_secs(10));
        let deadline = command.limit().and_then(Deadline::after);
        for left in [10, 6, 2, 0] {
            assert_eq!(within(&command, deadline).limit(), Some(Duration::from_secs(left)));
            tokio::time::advance(Duration::from_secs(4)).await;
        }
        assert_eq!(within(&Command::new("WATCH"), None).limit(), None);
    }
}
