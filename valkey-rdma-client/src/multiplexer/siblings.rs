//! [`Siblings`]: the connections of one client. One that is up sends what waits for those that are not.

use std::sync::Arc;

use super::queue::RequestQueue;
use super::state::MultiplexerState;
use crate::sync::{Mutex, lock};

/// All connections of a client, in the order in which they were made.
#[derive(Default)]
pub(crate) struct Siblings(Mutex<Vec<Sibling>>);

struct Sibling {
    queue: Arc<RequestQueue>,
    state: Arc<MultiplexerState>,
}

impl Siblings {
    pub(super) fn join(&self, queue: Arc<RequestQueue>, state: Arc<MultiplexerState>) {
        lock(&self.0).push(Sibling { queue, state });
    }

    /// Gives what waits in the queue of a connection that is not up to one that is, if there is one.
    pub(super) fn relieve(&self, queue: &RequestQueue) {
        let up = lock(&self.0).iter().find(|sibling| sibling.state.is_online()).map(|up| up.queue.clone());
        if let Some(up) = up {
            queue.hand_over(&up);
        }
    }

    /// Wakes the tasks of the connections that are not up, because one is now.
    pub(super) fn wake_offline(&self) {
        let siblings = lock(&self.0);
        let offline = siblings.iter().filter(|sibling| !sibling.state.is_online());
        let queues: Vec<_> = offline.map(|sibling| sibling.queue.clone()).collect();
        // Not with the lock held: a waker may run anything.
        drop(siblings);
        queues.iter().for_each(|queue| queue.submitted.wake());
    }
}
