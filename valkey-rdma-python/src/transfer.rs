//! Batches of values on lanes: cut into chunks, sent on several lanes at once, joined in order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::task::JoinSet;
use valkey_rdma_client::{
    Client, Command, Dedicated, DirectSlice, Error, Fate, Fetched, LostCause, NotDirect, Placed, ServerError,
};
use valkey_rdma_transport::sync::lock;

use crate::lane_sets::LaneSets;
use crate::lanes::{Lanes, Purpose};
use crate::memory::Memory;

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

/// The outcome of a direct call.
type Tried = Result<Result<Placed, NotDirect>, Error>;

/// What is sent with one key.
pub(crate) trait Item: Send + Sized + 'static {
    type Outcome: Send + 'static;
    /// What all items of a batch have in common.
    type Common: Copy + Send + Sync + 'static;
    const PURPOSE: Purpose;

    fn key(&self) -> &Bytes;

    /// The addresses of the value's bytes.
    fn range(&self) -> Range<usize>;

    /// Bytes of the value.
    fn len(&self) -> usize {
        self.range().len()
    }

    /// Why a direct transfer cannot do it.
    fn not_direct(common: Self::Common) -> Option<&'static str>;

    /// Moves a value between the server and registered memory, or says why that is not possible.
    fn transfer(client: &Client, key: &Bytes, slices: Vec<DirectSlice>)
    -> impl Future<Output = Tried> + Send;

    /// The outcome of a value of this length that was moved, in the memory for it. `None`: there is no such key.
    fn moved(len: Option<usize>, room: usize, common: Self::Common) -> Self::Outcome;

    /// Sends items together on a lane, once. Fails if the lane does.
    fn attempt(
        items: &mut [Self],
        lane: &mut Dedicated,
        common: Self::Common,
    ) -> impl Future<Output = Result<PerKey<Self::Outcome>, Error>> + Send;

    /// True if sending all items again after this failure does no harm.
    fn is_repeatable(error: &Error) -> bool;

    /// Sends one item where the cluster says, through redirections and failovers.
    fn send_apart(
        &mut self,
        cluster: &Client,
        common: Self::Common,
    ) -> impl Future<Output = Result<Self::Outcome, Error>> + Send;

    /// The error reply of a server in an outcome.
    fn refusal(outcome: &Result<Self::Outcome, Error>) -> Option<&Error>;
}

/// What the chunks of a batch have in common.
pub(crate) struct Batch<C> {
    sets: Arc<LaneSets>,
    common: C,
    begun: Arc<AtomicBool>,
}

impl<C: Copy> Batch<C> {
    pub(crate) fn new(sets: Arc<LaneSets>, common: C) -> Self {
        Self { sets, common, begun: Arc::default() }
    }

    /// True if part of it may have been sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }
}

impl<C: Copy> Clone for Batch<C> {
    fn clone(&self) -> Self {
        Self { sets: self.sets.clone(), common: self.common, begun: self.begun.clone() }
    }
}

/// Sends a batch. Returns the outcomes in order.
///
/// Chunks that go over several lanes are the work of `workers`, which use the memory of the batch until they have ended: a caller
/// that drops the future waits for them.
pub(crate) async fn send_all<T: Item>(
    batch: &Batch<T::Common>,
    workers: &mut JoinSet<Done<T>>,
    items: Vec<T>,
) -> PerKey<T::Outcome> {
    let mut queues = queues(&batch.sets, items);
    let mut done = match &mut queues[..] {
        [] => Vec::new(),
        // On the calling thread, which then copies the values itself.
        [(lanes, chunks)] if chunks.len() == 1 => match chunks.pop_front() {
            Some(chunk) => send_chunk(batch, lanes.clone(), chunk).await,
            None => Vec::new(),
        },
        _ => {
            for (lanes, chunks) in queues {
                let most = lanes.as_ref().map_or(1, |lanes| lanes.settings().count);
                let count = chunks.len().min(most);
                let chunks = Arc::new(Mutex::new(chunks));
                for _ in 0..count {
                    workers.spawn(work(batch.clone(), lanes.clone(), chunks.clone()));
                }
            }
            let mut done = Vec::new();
            while let Some(joined) = workers.join_next().await {
                match joined {
                    Ok(of_worker) => done.extend(of_worker),
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    // Python exits, and the background threads end all tasks, this one too.
                    Err(_) => std::future::pending().await,
                }
            }
            done
        }
    };
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Items with their places in the batch.
type Chunk<T> = Vec<(usize, T)>;

/// Outcomes with their places in the batch.
pub(crate) type Done<T> = Vec<(usize, Result<<T as Item>::Outcome, Error>)>;

/// The chunks for one server. Without lanes: those that no node serves at the moment.
type Queue<T> = (Option<Arc<Lanes>>, VecDeque<Chunk<T>>);

/// Sends chunks one after the other, until none is left.
async fn work<T: Item>(
    batch: Batch<T::Common>,
    lanes: Option<Arc<Lanes>>,
    chunks: Arc<Mutex<VecDeque<Chunk<T>>>>,
) -> Done<T> {
    let mut done = Vec::new();
    loop {
        let next = lock(&chunks).pop_front();
        let Some(chunk) = next else { return done };
        done.extend(send_chunk(&batch, lanes.clone(), chunk).await);
    }
}

/// Sorts items by server, and groups what is sent together on one connection: enough to keep it busy, little enough to share a
/// batch between connections.
fn queues<T: Item>(sets: &LaneSets, items: Vec<T>) -> Vec<Queue<T>> {
    let mut queues: Vec<(Queue<T>, usize)> = Vec::new();
    for (at, item) in items.into_iter().enumerate() {
        let (lanes, len) = (sets.of(item.key()), item.len());
        let same = |known: &Option<Arc<Lanes>>| match (known, &lanes) {
            (Some(known), Some(lanes)) => Arc::ptr_eq(known, lanes),
            (None, None) => true,
            _ => false,
        };
        let found = queues.iter().position(|((known, _), _)| same(known));
        let found = found.unwrap_or_else(|| {
            queues.push(((lanes, VecDeque::new()), 0));
            queues.len() - 1
        });
        let ((_, chunks), room) = &mut queues[found];
        match chunks.back_mut() {
            Some(chunk) if *room >= len && chunk.len() < CHUNK_KEYS => {
                *room -= len;
                chunk.push((at, item));
            }
            _ => {
                *room = CHUNK_BYTES.saturating_sub(len);
                chunks.push_back(vec![(at, item)]);
            }
        }
    }
    queues.into_iter().map(|(queue, _)| queue).collect()
}

/// Sends a chunk on a lane. In a cluster, what does not succeed there because a slot has moved or a node has failed is sent
/// again, key by key, where the cluster says. That is rare, and boxed: each call of a program moves its future, which stays small so.
async fn send_chunk<T: Item>(
    batch: &Batch<T::Common>,
    lanes: Option<Arc<Lanes>>,
    chunk: Chunk<T>,
) -> Done<T> {
    let common = batch.common;
    let (places, mut items): (Vec<_>, Vec<_>) = chunk.into_iter().unzip();
    let sent = match lanes {
        Some(lanes) => Some(send(&lanes, &mut items, batch).await),
        None => None,
    };
    let cluster = batch.sets.cluster_client();
    if cluster.is_some() {
        // From here on, it sends.
        batch.begin();
    }
    let outcomes = match (sent, cluster) {
        (Some(Ok(outcomes)), None) => outcomes,
        (Some(Ok(mut outcomes)), Some(cluster)) => {
            for (outcome, item) in outcomes.iter_mut().zip(&mut items) {
                if T::refusal(outcome).and_then(Error::server).is_some_and(ServerError::is_about_node) {
                    *outcome = Box::pin(item.send_apart(cluster, common)).await;
                }
            }
            outcomes
        }
        (Some(Err(error)), Some(cluster)) if T::is_repeatable(&error) => {
            Box::pin(apart(&mut items, cluster, common)).await
        }
        (None, Some(cluster)) => Box::pin(apart(&mut items, cluster, common)).await,
        (Some(Err(error)), _) => items.iter().map(|_| Err(error.clone())).collect(),
        // One server has lanes for every key.
        (None, None) => Vec::new(),
    };
    places.into_iter().zip(outcomes).collect()
}

/// Sends items together on a lane, and again if the lane is lost and that does no harm.
async fn send<T: Item>(
    lanes: &Arc<Lanes>,
    items: &mut [T],
    batch: &Batch<T::Common>,
) -> Result<PerKey<T::Outcome>, Error> {
    let mut lane = lanes.take(T::PURPOSE).await?;
    batch.begin();
    let mut retries = lanes.settings().retries;
    loop {
        match T::attempt(items, lane.connection(), batch.common).await {
            Ok(outcomes) => {
                lane.keep();
                return Ok(outcomes);
            }
            Err(error) if retries > 0 && has_lost_its_lane(&error) && T::is_repeatable(&error) => {
                retries -= 1;
                lane.reconnect().await?;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn apart<T: Item>(items: &mut [T], cluster: &Client, common: T::Common) -> PerKey<T::Outcome> {
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        outcomes.push(item.send_apart(cluster, common).await);
    }
    outcomes
}

/// True if the connection was lost, and another to the same node may do. A node of a cluster that is silent was replaced.
fn has_lost_its_lane(error: &Error) -> bool {
    matches!(error, Error::Lost(lost) if !matches!(lost.cause(), LostCause::Silent { .. }))
}

impl Item for Load {
    type Outcome = Fetched;
    type Common = Fit;
    const PURPOSE: Purpose = Purpose::Load;

    fn key(&self) -> &Bytes {
        &self.key
    }

    fn range(&self) -> Range<usize> {
        self.memory.range()
    }

    fn not_direct(_: Fit) -> Option<&'static str> {
        None
    }

    async fn transfer(client: &Client, key: &Bytes, slices: Vec<DirectSlice>) -> Tried {
        Ok(client.try_get_direct(key, slices).await?.map_err(|(reason, _)| reason))
    }

    fn moved(len: Option<usize>, room: usize, fit: Fit) -> Fetched {
        match len {
            None => Fetched::Missing,
            Some(len) if fit == Fit::Exactly && len != room => Fetched::Skipped(len),
            Some(len) => Fetched::Read(len),
        }
    }

    async fn attempt(items: &mut [Self], lane: &mut Dedicated, fit: Fit) -> Result<PerKey<Fetched>, Error> {
        let keys: Vec<_> = items.iter().map(|load| load.key.clone()).collect();
        let mut places: Vec<_> = items.iter_mut().map(|load| Some(load.memory.as_mut_slice())).collect();
        let place = |index: usize, len: usize| fitting(places[index].take()?, len, fit);
        let fetched = lane.get_each(&keys, None, place).await?;
        Ok(fetched.into_iter().map(Ok).collect())
    }

    /// To read a value twice does no harm.
    fn is_repeatable(_: &Error) -> bool {
        true
    }

    async fn send_apart(&mut self, cluster: &Client, fit: Fit) -> Result<Fetched, Error> {
        let Some(mut reader) = cluster.stream_reply(Command::new("GET").arg(&self.key)).await? else {
            return Ok(Fetched::Missing);
        };
        let len = reader.len();
        let Some(memory) = fitting(self.memory.as_mut_slice(), len, fit) else {
            return Ok(Fetched::Skipped(len));
        };
        let mut filled = 0;
        while filled < len {
            filled += reader.read(&mut memory[filled..]).await?;
        }
        reader.finish().await?;
        Ok(Fetched::Read(len))
    }

    fn refusal(outcome: &Result<Fetched, Error>) -> Option<&Error> {
        match outcome {
            Ok(Fetched::Refused(error)) => Some(error),
            _ => None,
        }
    }
}

/// The part of the memory for a value of this length, if it fits.
fn fitting(memory: &mut [u8], len: usize, fit: Fit) -> Option<&mut [u8]> {
    if fit == Fit::Exactly && memory.len() != len { None } else { memory.get_mut(..len) }
}

impl Store {
    fn command(&self, ttl: Option<u64>) -> Command {
        let set = Command::new("SET").arg(&self.key).arg(self.value.clone());
        match ttl {
            Some(ttl) => set.arg("PX").arg(ttl.to_string()),
            None => set,
        }
    }
}

impl Item for Store {
    type Outcome = ();
    /// The time to live in milliseconds.
    type Common = Option<u64>;
    const PURPOSE: Purpose = Purpose::Store;

    fn key(&self) -> &Bytes {
        &self.key
    }

    fn range(&self) -> Range<usize> {
        let start = self.value.as_ptr().addr();
        start..start + self.value.len()
    }

    /// The direct command has no time to live, and a second one would leave a value without it if it failed.
    fn not_direct(ttl: Option<u64>) -> Option<&'static str> {
        ttl.and(Some("the value has a time to live"))
    }

    async fn transfer(client: &Client, key: &Bytes, slices: Vec<DirectSlice>) -> Tried {
        Ok(client.try_set_direct(key, slices).await?.map_err(|(reason, _)| reason))
    }

    fn moved(_: Option<usize>, _: usize, _: Option<u64>) {}

    async fn attempt(
        items: &mut [Self],
        lane: &mut Dedicated,
        ttl: Option<u64>,
    ) -> Result<PerKey<()>, Error> {
        let commands: Vec<_> = items.iter().map(|store| store.command(ttl)).collect();
        let replies = lane.execute_all(&commands, None).await?;
        Ok(replies.into_iter().map(|reply| Ok(reply.map(drop)?)).collect())
    }

    /// What may have run is not sent again: another client may have set a newer value since.
    fn is_repeatable(error: &Error) -> bool {
        error.fate() == Fate::NotSent
    }

    async fn send_apart(&mut self, cluster: &Client, ttl: Option<u64>) -> Result<(), Error> {
        cluster.command(self.command(ttl)).await.map(drop)
    }

    fn refusal(outcome: &Result<(), Error>) -> Option<&Error> {
        outcome.as_ref().err()
    }
}

/// The most bytes in a chunk of several values.
const CHUNK_BYTES: usize = 2 << 20;

/// The most keys in a chunk.
const CHUNK_KEYS: usize = 64;
