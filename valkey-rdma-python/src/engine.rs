//! [`Engine`]: what the clients of this module share; it knows nothing of Python.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::timeout;
use valkey_rdma_client::{Client, Command, Config, Error, Fate, Fetched, ServerError, Value};

use crate::errors::Failure;
use crate::lanes::{Lanes, Purpose};
use crate::memory::Memory;
use crate::registration::Registrations;

/// A client, and its lanes for large values.
pub(crate) struct Engine {
    pub(crate) client: Client,
    lanes: Arc<Lanes>,
    pub(crate) registrations: Arc<Registrations>,
    /// How long a batch may take, unless the call says otherwise.
    timeout: Option<Duration>,
    closed: AtomicBool,
}

/// A key, and the memory for its value.
pub(crate) struct Load {
    pub(crate) key: Bytes,
    pub(crate) memory: Memory,
}

/// A key, and its value.
pub(crate) struct Store {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
}

/// How a value must fit its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It may be shorter.
    Within,
    /// It has the same length.
    Exactly,
}

/// The outcome of each key of a batch.
pub(crate) type PerKey<T> = Vec<Result<T, Error>>;

impl Engine {
    pub(crate) async fn connect(
        url: String,
        config: Config,
        lanes: usize,
        timeout: Option<Duration>,
    ) -> Result<Arc<Self>, Failure> {
        let client = Client::connect_with(url.as_str(), &config).await?;
        let lanes = Lanes::new(client.clone(), lanes);
        let registrations = Arc::default();
        Ok(Arc::new(Self { client, lanes, registrations, timeout, closed: AtomicBool::new(false) }))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes the connections, after the replies to what was sent.
    pub(crate) async fn close(self: Arc<Self>) -> Result<(), Failure> {
        self.closed.store(true, Ordering::Release);
        self.lanes.close();
        self.client.close().await;
        Ok(())
    }

    pub(crate) async fn execute(self: Arc<Self>, command: Command) -> Result<Value, Failure> {
        Ok(self.client.execute(command).await?)
    }

    /// Sends a blocking command on a connection of its own.
    pub(crate) async fn block(
        self: Arc<Self>,
        arguments: Vec<Bytes>,
        limit: Option<Duration>,
    ) -> Result<Value, Failure> {
        within(limit, async { Ok(self.client.blocking_command(arguments).await?) }).await
    }

    /// Sends commands together.
    pub(crate) async fn pipeline(
        self: Arc<Self>,
        commands: Vec<Command>,
        limit: Option<Duration>,
    ) -> Result<Vec<Result<Value, ServerError>>, Failure> {
        let mut pipeline = self.client.pipeline();
        for command in commands {
            pipeline.push(match limit {
                Some(limit) => command.timeout(limit),
                None => command,
            });
        }
        Ok(pipeline.send().await?)
    }

    /// Sends a command for each key, whose reply is a number: of EXISTS, of UNLINK. True where it is not 0.
    pub(crate) async fn count_each(
        self: Arc<Self>,
        name: &'static str,
        keys: Vec<Bytes>,
        limit: Option<Duration>,
    ) -> Result<Vec<bool>, Failure> {
        let commands = keys.iter().map(|key| Command::new(name).arg(key).idempotent()).collect();
        let replies = self.pipeline(commands, limit).await?;
        replies.into_iter().map(|reply| Ok(reply?.as_int().is_some_and(|count| count > 0))).collect()
    }

    /// Reads the value of each key straight into its memory.
    pub(crate) async fn load(
        self: Arc<Self>,
        loads: Vec<Load>,
        fit: Fit,
        limit: Option<Duration>,
    ) -> Result<PerKey<Fetched>, Failure> {
        let chunks = chunks(loads, |load| load.memory.len());
        let work = self.on_lanes(chunks, move |lanes, loads| load_chunk(lanes, loads, fit));
        within(limit.or(self.timeout), async { Ok(work.await) }).await
    }

    /// Sends the values from where they are. With `ttl`, in milliseconds, the server forgets them after that time.
    pub(crate) async fn store(
        self: Arc<Self>,
        mut stores: Vec<Store>,
        ttl: Option<u64>,
        limit: Option<Duration>,
    ) -> Result<PerKey<()>, Failure> {
        for store in &mut stores {
            store.value = self.registrations.lend(std::mem::take(&mut store.value));
        }
        let chunks = chunks(stores, |store| store.value.len());
        let work = self.on_lanes(chunks, move |lanes, stores| store_chunk(lanes, stores, ttl));
        within(limit.or(self.timeout), async { Ok(work.await) }).await
    }

    /// Runs `work` for every chunk, on as many lanes as there are. Returns the outcomes of all in order.
    async fn on_lanes<T, R, W, F>(&self, mut chunks: VecDeque<Vec<T>>, work: W) -> PerKey<R>
    where
        T: Send + 'static,
        R: Send + 'static,
        W: Fn(Arc<Lanes>, Vec<T>) -> F + Clone + Send + 'static,
        F: Future<Output = PerKey<R>> + Send,
    {
        let Some(first) = chunks.pop_front() else { return Vec::new() };
        if chunks.is_empty() {
            return work(self.lanes.clone(), first).await;
        }
        chunks.push_front(first);
        let count = chunks.len();
        let chunks = Arc::new(Mutex::new(chunks.into_iter().enumerate()));
        let mut workers = JoinSet::new();
        for _ in 0..count.min(self.lanes.count()) {
            let (chunks, lanes, work) = (chunks.clone(), self.lanes.clone(), work.clone());
            workers.spawn(async move {
                let mut done = Vec::new();
                loop {
                    let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((at, chunk)) = next else { return done };
                    done.push((at, work(lanes.clone(), chunk).await));
                }
            });
        }
        let mut done = workers.join_all().await.into_iter().flatten().collect::<Vec<_>>();
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().flat_map(|(_, outcomes)| outcomes).collect()
    }
}

/// Groups what is sent together on one connection: enough to keep it busy, little enough to share a batch between connections.
fn chunks<T>(items: Vec<T>, len: impl Fn(&T) -> usize) -> VecDeque<Vec<T>> {
    let mut chunks = VecDeque::<Vec<T>>::new();
    let mut room = 0;
    for item in items {
        let len = len(&item);
        match chunks.back_mut() {
            Some(chunk) if room >= len && chunk.len() < CHUNK_KEYS => {
                room -= len;
                chunk.push(item);
            }
            _ => {
                room = CHUNK_BYTES.saturating_sub(len);
                chunks.push_back(vec![item]);
            }
        }
    }
    chunks
}

async fn load_chunk(lanes: Arc<Lanes>, mut loads: Vec<Load>, fit: Fit) -> PerKey<Fetched> {
    let count = loads.len();
    let keys: Vec<_> = loads.iter().map(|load| load.key.clone()).collect();
    let fetch = async {
        let mut lane = lanes.take(Purpose::Load).await?;
        loop {
            let mut places: Vec<_> = loads.iter_mut().map(|load| Some(load.memory.as_mut_slice())).collect();
            let place = |index: usize, len: usize| {
                let memory = places[index].take()?;
                if fit == Fit::Exactly && memory.len() != len { None } else { memory.get_mut(..len) }
            };
            match lane.connection().get_each(&keys, None, place).await {
                Ok(fetched) => {
                    lane.keep();
                    return Ok(fetched);
                }
                Err(Error::Lost(_)) if lane.was_idle => lane.reconnect().await?,
                Err(error) => return Err(error),
            }
        }
    };
    match fetch.await {
        Ok(fetched) => fetched.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); count],
    }
}

async fn store_chunk(lanes: Arc<Lanes>, stores: Vec<Store>, ttl: Option<u64>) -> PerKey<()> {
    let count = stores.len();
    let set = |store: Store| {
        let set = Command::new("SET").arg(store.key).arg(store.value);
        match ttl {
            Some(ttl) => set.arg("PX").arg(ttl.to_string()),
            None => set,
        }
    };
    let commands: Vec<_> = stores.into_iter().map(set).collect();
    let send = async {
        let mut lane = lanes.take(Purpose::Store).await?;
        loop {
            match lane.connection().execute_all(&commands, None).await {
                Ok(replies) => {
                    lane.keep();
                    return Ok(replies);
                }
                // To set a value twice has the same effect as once.
                Err(Error::Lost(_)) if lane.was_idle => lane.reconnect().await?,
                Err(error) => return Err(error),
            }
        }
    };
    match send.await {
        Ok(replies) => replies.into_iter().map(|reply| Ok(reply.map(drop)?)).collect(),
        Err(error) => vec![Err(error); count],
    }
}

/// Drops the work after this time.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(limit) = limit else { return work.await };
    let late = |_| Err(Failure::Late { seconds: limit.as_secs_f64(), fate: Fate::MayHaveRun });
    timeout(limit, work).await.unwrap_or_else(late)
}

/// The most bytes in a chunk of several values.
const CHUNK_BYTES: usize = 2 << 20;

/// The most keys in a chunk.
const CHUNK_KEYS: usize = 64;
