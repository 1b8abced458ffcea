//! [`Engine`]: what the clients of this module share; it knows nothing of Python.

use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use valkey_rdma_client::{Client, Command, Error, Fate, Fetched, Value};

use crate::credentials::Provider;
use crate::direct::{DIRECT_FROM, Direct, Place};
use crate::errors::Failure;
use crate::lane_sets::LaneSets;
use crate::lanes::LaneSettings;
use crate::registration::Registrations;
use crate::traffic::Traffic;
use crate::transfer::{Batch, Fit, Item, Load, PerKey, Store, send_all};

/// A client of one server or a cluster, and its lanes for large values.
pub(crate) struct Engine {
    pub(crate) client: Client,
    lanes: Arc<LaneSets>,
    direct: Direct,
    pub(crate) registrations: Arc<Registrations>,
    pub(crate) traffic: Arc<Traffic>,
    /// How long a batch may take, unless the call says otherwise.
    timeout: Option<Duration>,
    provider: Option<Arc<Provider>>,
    /// Each operation that closing waits for holds a receiver.
    phase: watch::Sender<Phase>,
}

/// How far closing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// No operation begins, blocking commands end, and those on buffers may end in their own time.
    Closing,
    /// All operations end.
    Stopping,
}

/// An operation that closing waits for.
pub(crate) struct InFlight(watch::Receiver<Phase>);

impl InFlight {
    /// Ready when the operation must end.
    pub(crate) async fn stopped(&self) {
        self.reached(Phase::Stopping).await;
    }

    async fn reached(&self, phase: Phase) {
        // It fails only without the sender, which every operation keeps.
        let _ = self.0.clone().wait_for(|now| *now >= phase).await;
    }
}

/// `Client of ...`: the Python class and what it is connected to.
impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.class())?;
        match self.client.cluster() {
            _ if self.is_closed() => f.write_str(" closed"),
            None => write!(f, " {}", self.client.info()),
            Some(cluster) => write!(f, " of {} nodes", cluster.status().nodes.len()),
        }
    }
}

impl Engine {
    /// The name of the blocking class.
    fn class(&self) -> &'static str {
        if self.client.cluster().is_some() { "ClusterClient" } else { "Client" }
    }

    pub(crate) async fn connect(
        client: impl Future<Output = Result<Client, Error>>,
        lanes: LaneSettings,
        timeout: Option<Duration>,
        provider: Option<Arc<Provider>>,
    ) -> Result<Arc<Self>, Failure> {
        let client = client.await?;
        let lanes = Arc::new(LaneSets::new(&client, lanes));
        let phase = watch::Sender::new(Phase::Open);
        let (registrations, traffic) = (Arc::default(), Arc::<Traffic>::default());
        let direct = Direct::new(client.clone(), lanes.clone(), traffic.clone());
        Ok(Arc::new(Self { client, lanes, direct, registrations, traffic, timeout, provider, phase }))
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.phase.borrow() > Phase::Open
    }

    /// Begins an operation that closing waits for.
    ///
    /// # Errors
    /// If the client is closed.
    pub(crate) fn begin(&self) -> Result<InFlight, Failure> {
        // Before the look at the phase: either closing waits for this operation, or it is seen here.
        let in_flight = InFlight(self.phase.subscribe());
        if self.is_closed() { Err(Failure::Closed) } else { Ok(in_flight) }
    }

    /// Closes the connections, after the replies to what was sent, or when they do not come in time. No operation uses memory of the
    /// program any more when it returns.
    pub(crate) async fn close(self: Arc<Self>) -> Result<(), Failure> {
        self.advance(Phase::Closing);
        self.lanes.close();
        let operations = async {
            let _ = timeout(PATIENCE, self.phase.closed()).await;
            self.stop().await;
        };
        tokio::join!(self.client.close(), operations);
        self.provider.iter().for_each(|provider| provider.end());
        Ok(())
    }

    /// Ends all operations, and closes the connections in the background.
    pub(crate) fn end(self: Arc<Self>, handle: &Handle) {
        self.advance(Phase::Stopping);
        handle.spawn(self.close());
    }

    /// Ends all operations, and waits until none uses memory of the program any more. No operation begins from now on.
    pub(crate) async fn stop(&self) {
        self.advance(Phase::Stopping);
        self.phase.closed().await;
    }

    fn advance(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let earlier = *phase < to;
            *phase = (*phase).max(to);
            earlier
        });
    }

    pub(crate) async fn execute(self: Arc<Self>, command: Command) -> Result<Value, Failure> {
        Ok(self.client.command(command).await?)
    }

    /// Sends a blocking command on a connection of its own.
    pub(crate) async fn block(
        self: Arc<Self>,
        arguments: Vec<Bytes>,
        limit: Option<Duration>,
    ) -> Result<Value, Failure> {
        let in_flight = self.begin()?;
        let closing = in_flight.reached(Phase::Closing);
        within(limit, closing, async { Ok(self.client.blocking_command(arguments).await?) }).await
    }

    /// Sends commands together.
    pub(crate) async fn pipeline(
        self: Arc<Self>,
        commands: Vec<Command>,
        limit: Option<Duration>,
    ) -> Result<Vec<Result<Value, Error>>, Failure> {
        let mut pipeline = self.client.pipeline();
        for command in commands {
            pipeline.push(match limit {
                Some(limit) => command.timeout(limit),
                None => command,
            });
        }
        Ok(pipeline.send().await?)
    }

    /// As [`count_each`](Self::count_each), of which the first failure is that of all.
    pub(crate) async fn count_all(
        self: Arc<Self>,
        name: &'static str,
        keys: Vec<Bytes>,
        limit: Option<Duration>,
    ) -> Result<Vec<bool>, Failure> {
        let counted = self.count_each(name, keys, limit).await?;
        Ok(counted.into_iter().collect::<Result<_, _>>()?)
    }

    /// Sends a command for each key, whose reply is a number: of EXISTS, of UNLINK. True where it is not 0. An UNLINK that may have run is
    /// not sent again: another client may have set the key since.
    pub(crate) async fn count_each(
        self: Arc<Self>,
        name: &'static str,
        keys: Vec<Bytes>,
        limit: Option<Duration>,
    ) -> Result<PerKey<bool>, Failure> {
        let commands = keys.iter().map(|key| Command::new(name).arg(key)).collect();
        let replies = self.pipeline(commands, limit).await?;
        let found = |value: Value| value.as_int().is_some_and(|count| count > 0);
        Ok(replies.into_iter().map(|reply| reply.map(found)).collect())
    }

    /// Reads the value of each key straight into its memory. Ends early when `stop` is ready.
    ///
    /// Closing waits for it from this call on, not from when it is first polled: it has the program's memory already.
    pub(crate) fn load(
        self: Arc<Self>,
        loads: Vec<Load>,
        fit: Fit,
        limit: Option<Duration>,
        stop: impl Future + Send + 'static,
    ) -> impl Future<Output = Result<PerKey<Fetched>, Failure>> + Send {
        let begun = self.begin();
        let places = self.places(&loads, fit, limit);
        async move {
            let loaded = self.send(begun, loads, places, fit, limit, stop).await;
            self.traffic.loaded(&loaded);
            loaded
        }
    }

    /// Sends the values from where they are. With `ttl`, in milliseconds, the server forgets them after that time. Ends early when
    /// `stop` is ready. Closing waits for it as for [`load`](Self::load).
    pub(crate) fn store(
        self: Arc<Self>,
        mut stores: Vec<Store>,
        ttl: Option<u64>,
        limit: Option<Duration>,
        stop: impl Future + Send + 'static,
    ) -> impl Future<Output = Result<PerKey<()>, Failure>> + Send {
        let begun = self.begin();
        let places = self.places(&stores, ttl, limit);
        async move {
            for store in &mut stores {
                store.value = self.registrations.lend(std::mem::take(&mut store.value));
            }
            let lengths: Vec<_> = stores.iter().map(|store| store.value.len()).collect();
            let stored = self.send(begun, stores, places, ttl, limit, stop).await;
            self.traffic.stored(&stored, &lengths);
            stored
        }
    }

    async fn send<T: Item>(
        &self,
        begun: Result<InFlight, Failure>,
        mut items: Vec<T>,
        places: Vec<Option<Place>>,
        common: T::Common,
        limit: Option<Duration>,
        stop: impl Future,
    ) -> Result<PerKey<T::Outcome>, Failure> {
        let in_flight = begun?;
        let (mut calls, mut workers) = (JoinSet::new(), JoinSet::new());
        let batch = Batch::new(self.lanes.clone(), common);
        let sending = async {
            if places.is_empty() {
                return Ok(send_all(&batch, &mut workers, std::mem::take(&mut items)).await);
            }
            batch.begin();
            let moved = self.direct.send_all(&mut calls, &items, &places, common).await;
            // Until here, the items keep other operations from the memory that the server may use.
            let all = std::mem::take(&mut items).into_iter().zip(&moved);
            let rest = all.filter(|(_, moved)| moved.is_none()).map(|(item, _)| item).collect();
            let mut sent = send_all(&batch, &mut workers, rest).await.into_iter();
            Ok(moved.into_iter().filter_map(|moved| moved.or_else(|| sent.next())).collect())
        };
        let stop = async {
            tokio::select! {
                _ = stop => {}
                () = in_flight.stopped() => {}
            }
        };
        let sent = within(limit.or(self.timeout), stop, sending).await;
        // Those of a batch that ended early may still be writing, or be about to let the server write.
        calls.shutdown().await;
        workers.shutdown().await;
        if sent.is_err() {
            // All at once: each may belong to another server that does not reply.
            let mut reclaimed: JoinSet<_> = places.into_iter().flatten().map(Place::reclaim).collect();
            while reclaimed.join_next().await.is_some() {}
        }
        match sent {
            // It has waited for a lane all the time.
            Err(Failure::Late(limit, _)) if !batch.has_begun() => Err(Failure::Late(limit, Fate::NotSent)),
            sent => sent,
        }
    }
}

impl Engine {
    /// Where the values lie that may go directly. Empty if none may.
    fn places<T: Item>(&self, items: &[T], common: T::Common, limit: Option<Duration>) -> Vec<Option<Place>> {
        let place = |item: &T| match item.len() {
            DIRECT_FROM.. => self.registrations.place(&item.range()),
            _ => None,
        };
        let places: Vec<_> = items.iter().map(place).collect();
        if places.iter().all(Option::is_none) {
            return Vec::new();
        }
        // A direct call ends with the time limit of the client.
        let too_long = limit.zip(self.timeout).is_some_and(|(limit, of_client)| limit > of_client);
        let too_long = too_long.then_some("the call has a longer timeout than the client");
        match T::not_direct(common).or(too_long) {
            Some(reason) => {
                self.traffic.not_direct(reason);
                Vec::new()
            }
            None => places,
        }
    }
}

/// Drops the work after this time, or when `stop` is ready.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    stop: impl Future,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late = async {
        match limit {
            Some(limit) => {
                sleep(limit).await;
                Failure::Late(limit, Fate::MayHaveRun)
            }
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        _ = stop => Err(Failure::Stopped),
        late = late => Err(late),
    }
}

/// How long closing waits for replies to what was sent.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
