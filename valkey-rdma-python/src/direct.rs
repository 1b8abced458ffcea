//! [`Direct`]: values in registered memory that a server's adapter reads and writes itself. What cannot go this way, goes over lanes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::timeout;
use valkey_rdma_client::{Client, DirectMemory, DirectSlice, Error, Fate, NotDirect};

use crate::lane_sets::LaneSets;
use crate::lanes::Purpose;
use crate::traffic::Traffic;
use crate::transfer::Item;

/// Where a value lies in registered memory: in each part in order.
#[derive(Clone)]
pub(crate) struct Place {
    ranges: Vec<(DirectMemory, Range<usize>)>,
    /// A call has taken them, and they have not come back.
    taken: Arc<AtomicBool>,
}

impl Place {
    pub(crate) fn new(ranges: Vec<(DirectMemory, Range<usize>)>) -> Self {
        Self { ranges, taken: Arc::default() }
    }

    /// `None`: another call has some of it.
    fn take(&self) -> Option<Vec<DirectSlice>> {
        let taken = self.ranges.iter().map(|(memory, range)| memory.take(range.clone()).ok());
        let taken: Option<Vec<_>> = taken.collect();
        self.taken.store(taken.is_some(), Ordering::Relaxed);
        taken
    }

    /// The call has its slices back.
    fn came_back(&self) {
        self.taken.store(false, Ordering::Relaxed);
    }

    /// Waits until no device can reach it any more. A server that has not replied in time loses its connection for that. What was not
    /// taken, or has come back, is not waited for: another call may have it since.
    pub(crate) async fn reclaim(self) {
        if !self.taken.load(Ordering::Relaxed) {
            return;
        }
        for (memory, range) in &self.ranges {
            let mut free = std::pin::pin!(memory.take_when_free(range.clone()));
            // Again and again, because a call may lend it only after the first time. It is inside of its memory, so there is no other error.
            while timeout(PATIENCE, free.as_mut()).await.is_err() {
                memory.recall(range.clone());
            }
        }
        self.came_back();
    }
}

/// Moves values directly.
#[derive(Clone)]
pub(crate) struct Direct {
    client: Client,
    sets: Arc<LaneSets>,
    traffic: Arc<Traffic>,
}

/// The outcome of an item, unless it has to go over a lane.
type Moved<T> = Option<Result<<T as Item>::Outcome, Error>>;

/// The calls of a batch, with their places in it.
pub(crate) type Calls<T> = JoinSet<(usize, Moved<T>)>;

impl Direct {
    pub(crate) fn new(client: Client, sets: Arc<LaneSets>, traffic: Arc<Traffic>) -> Self {
        Self { client, sets, traffic }
    }

    /// Moves each item that has a place, all at once. A caller that drops the future waits for the end of `calls`, which may still take
    /// slices, and then [reclaims](Place::reclaim) the places.
    pub(crate) async fn send_all<T: Item>(
        &self,
        calls: &mut Calls<T>,
        items: &[T],
        places: &[Option<Place>],
        common: T::Common,
    ) -> Vec<Moved<T>> {
        if let ([item], [Some(place)]) = (items, places) {
            return vec![self.clone().send::<T>(item.key().clone(), item.len(), place.clone(), common).await];
        }
        let mut moved: Vec<Moved<T>> = items.iter().map(|_| None).collect();
        for (at, (item, place)) in items.iter().zip(places).enumerate() {
            let Some(place) = place.clone() else { continue };
            let call = self.clone().send::<T>(item.key().clone(), item.len(), place, common);
            calls.spawn(async move { (at, call.await) });
        }
        while let Some(joined) = calls.join_next().await {
            match joined {
                Ok((at, outcome)) => moved[at] = outcome,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // Python exits, and the background threads end all tasks, this one too.
                Err(_) => std::future::pending().await,
            }
        }
        moved
    }

    async fn send<T: Item>(self, key: Bytes, room: usize, place: Place, common: T::Common) -> Moved<T> {
        let lanes = self.sets.of(&key).filter(|lanes| lanes.may_be_direct())?;
        let slices = place.take()?;
        let error = match T::transfer(&self.client, &key, slices).await {
            Ok(Ok(placed)) => {
                place.came_back();
                self.traffic.direct();
                return Some(Ok(T::moved(placed.len, room, common)));
            }
            Ok(Err(reason)) => {
                place.came_back();
                // Other reasons are those of this value or its memory.
                if matches!(reason, NotDirect::NotOffered | NotDirect::NotRdma | NotDirect::Encrypted) {
                    lanes.are_not_direct();
                }
                self.traffic.not_direct(reason);
                return None;
            }
            Err(error) => error,
        };
        place.reclaim().await;
        self.traffic.not_direct(&error);
        let is_final = match &error {
            Error::TimedOut(_) => true,
            Error::Lost(_) if lanes.settings().retries == 0 => true,
            // It has waited for the server as long as it may, and a lane would wait as long again.
            Error::Connect(_) => !self.client.is_connected(),
            // The server may have stored the value, and another client a newer one since.
            Error::Unexpected(_) => T::PURPOSE == Purpose::Store,
            // What a server refuses is refused again, or fits over a lane.
            error => error.fate() == Fate::MayHaveRun && !T::is_repeatable(error),
        };
        is_final.then_some(Err(error))
    }
}

/// How long a call that was cancelled, or is late, waits for its reply. Then its connection ends, and with it the other calls on it.
const PATIENCE: Duration = Duration::from_millis(500);

/// From this length on, values go directly. Shorter ones take no longer over a lane.
pub(crate) const DIRECT_FROM: usize = 64 << 10;
