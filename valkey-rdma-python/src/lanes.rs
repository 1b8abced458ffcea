//! [`Lanes`]: connections for large values, apart from the one that small commands share.

use std::collections::VecDeque;
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use valkey_rdma_client::cluster::{Cluster, NodeAddress, Route};
use valkey_rdma_client::{Client, Dedicated, Error};
use valkey_rdma_transport::sync::lock;

use crate::reactor::Home;

/// What a lane is wanted for. Loads are before stores, because a request waits for what is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Load,
    Store,
}

/// The server of lanes.
pub(crate) enum Origin {
    One(Client),
    Node(Cluster, NodeAddress),
}

impl Origin {
    async fn connect(&self) -> Result<Dedicated, Error> {
        match self {
            Self::One(client) => client.dedicated().await,
            Self::Node(cluster, address) => cluster.dedicated(Route::Node(address.clone())).await,
        }
    }
}

/// How many lanes there are to each server, and how they meet losses.
#[derive(Clone, Copy)]
pub(crate) struct LaneSettings {
    pub(crate) count: usize,
    /// How often a batch is sent again after its lane was lost, if that does no harm.
    pub(crate) retries: u32,
}

/// Up to a number of connections to one server, each used by one batch at a time. They are made when needed, and kept.
pub(crate) struct Lanes {
    origin: Origin,
    settings: LaneSettings,
    state: Mutex<State>,
}

struct State {
    /// Lanes that are neither in use nor handed to a waiting task.
    free: usize,
    idle: Vec<Connection>,
    loads: VecDeque<oneshot::Sender<Permit>>,
    stores: VecDeque<oneshot::Sender<Permit>>,
    /// Loads that went before a waiting store, in a row.
    overtaken: usize,
    closed: bool,
    /// When and why the last connect failed, unless a later one succeeded.
    failed: Option<(Instant, Error)>,
    /// When a direct transfer was last found to be impossible.
    not_direct: Option<Instant>,
}

/// The right to use a lane. Dropped, the next waiting task has it.
struct Permit(Option<Arc<Lanes>>);

/// A connection, and where the events of its socket arrive.
struct Connection {
    dedicated: Dedicated,
    home: Home,
}

/// A lane in use.
pub(crate) struct Lane {
    connection: Option<Connection>,
    permit: Permit,
}

impl Lanes {
    pub(crate) fn new(origin: Origin, settings: LaneSettings) -> Arc<Self> {
        let state = State {
            free: settings.count,
            idle: Vec::new(),
            loads: VecDeque::new(),
            stores: VecDeque::new(),
            overtaken: 0,
            closed: false,
            failed: None,
            not_direct: None,
        };
        Arc::new(Self { origin, settings, state: Mutex::new(state) })
    }

    pub(crate) fn settings(&self) -> LaneSettings {
        self.settings
    }

    /// Waits for a lane, and connects it if it is new.
    ///
    /// Cancel safe: a dropped future leaves its place to the next.
    pub(crate) async fn take(self: &Arc<Self>, purpose: Purpose) -> Result<Lane, Error> {
        let begin = Instant::now();
        let permit = match self.permit_or_wait(purpose) {
            Ok(permit) => permit,
            Err(waiting) => waiting.await.expect("a sender is dropped only after it was used"),
        };
        let home = Home::here();
        let mut idle = iter::from_fn(|| self.state().take_idle(&home));
        // A load that finds its lane closed by the server is sent again: to look first would cost each one a system call.
        let looks = purpose == Purpose::Store || self.settings.retries == 0;
        // One that cannot be moved here is lost.
        let usable = |mut connection: Connection| {
            if looks && !connection.dedicated.is_open() { None } else { connection.at(home.clone()).ok() }
        };
        let connection = match idle.find_map(usable) {
            Some(connection) => connection,
            None => self.open(begin).await?,
        };
        Ok(Lane { connection: Some(connection), permit })
    }

    /// Makes a connection for a task that has waited since `begin`. If a connect has failed meanwhile, the task has waited for the server
    /// as long as that one, and fails with it.
    async fn open(&self, begin: Instant) -> Result<Connection, Error> {
        if let Some((at, error)) = &self.state().failed
            && *at >= begin
            && at.elapsed() < FRESH
        {
            return Err(error.clone());
        }
        let opened = Connection::open(&self.origin).await;
        self.state().failed = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }

    /// Whether direct transfers with this server are worth a try.
    pub(crate) fn may_be_direct(&self) -> bool {
        self.state().not_direct.is_none_or(|at| at.elapsed() > TRY_DIRECT_AGAIN)
    }

    /// The server, or the way to it, has no direct transfers.
    pub(crate) fn are_not_direct(&self) {
        self.state().not_direct = Some(Instant::now());
    }

    fn permit_or_wait(self: &Arc<Self>, purpose: Purpose) -> Result<Permit, oneshot::Receiver<Permit>> {
        let mut state = self.state();
        if state.free > 0 {
            state.free -= 1;
            return Ok(Permit(Some(self.clone())));
        }
        let (sender, receiver) = oneshot::channel();
        match purpose {
            Purpose::Load => state.loads.push_back(sender),
            Purpose::Store => state.stores.push_back(sender),
        }
        Err(receiver)
    }

    /// Closes idle connections, and keeps no more.
    pub(crate) fn close(&self) {
        let idle = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.idle)
        };
        drop(idle);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// An idle connection, if there is one: rather one that need not be moved, and the most recently used.
    fn take_idle(&mut self, home: &Home) -> Option<Connection> {
        match self.idle.iter().rposition(|connection| connection.home == *home) {
            Some(at) => Some(self.idle.remove(at)),
            None => self.idle.pop(),
        }
    }

    /// The task that a lane goes to next.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        let store_waits = !self.stores.is_empty();
        if store_waits && (self.loads.is_empty() || self.overtaken >= MOST_OVERTAKEN) {
            self.overtaken = 0;
            return self.stores.pop_front();
        }
        self.overtaken = if store_waits { self.overtaken + 1 } else { 0 };
        self.loads.pop_front()
    }
}

impl Connection {
    async fn open(origin: &Origin) -> Result<Self, Error> {
        // Boxed, because it is rare and its future large.
        let dedicated = Box::pin(origin.connect()).await?;
        // The background threads' tasks, timers and reactor connect it.
        Self { dedicated, home: Home::background() }.at(Home::here())
    }

    /// The same connection, whose events arrive there.
    fn at(mut self, home: Home) -> Result<Self, Error> {
        if self.home != home {
            self.dedicated.move_to(home.handle())?;
            self.home = home;
        }
        Ok(self)
    }
}

impl Permit {
    fn lanes(&self) -> &Arc<Lanes> {
        self.0.as_ref().expect("taken only by drop")
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut lanes = self.0.take();
        while let Some(held) = lanes.take() {
            let mut state = held.state();
            let Some(next) = state.next() else {
                state.free += 1;
                return;
            };
            drop(state);
            // If that task has gone away, the permit comes back, for the one after it.
            lanes = next.send(Self(Some(held))).err().and_then(|mut refused| refused.0.take());
        }
    }
}

impl Lane {
    /// The connection.
    pub(crate) fn connection(&mut self) -> &mut Dedicated {
        &mut self.connection.as_mut().expect("taken only at the end").dedicated
    }

    /// Replaces a connection that was lost.
    pub(crate) async fn reconnect(&mut self) -> Result<(), Error> {
        self.connection = None;
        self.connection = Some(Connection::open(&self.permit.lanes().origin).await?);
        Ok(())
    }

    /// Keeps the connection for the next batch. Without it, the connection is closed.
    pub(crate) fn keep(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let mut state = self.permit.lanes().state();
        if !state.closed {
            state.idle.push(connection);
        }
    }
}

/// The most loads that go before a waiting store.
const MOST_OVERTAKEN: usize = 8;

/// How long the failure of one connect stands for that of others.
const FRESH: Duration = Duration::from_secs(1);

/// How long what a server does not offer is taken for true: another one may be in its place.
const TRY_DIRECT_AGAIN: Duration = Duration::from_secs(10);
