//! [`Hub`]: passes events to those who listen. Each has a queue of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use valkey_rdma_transport::sync::{Mutex, lock};

/// Passes events to listeners. Costs nothing while there is none.
#[derive(Debug)]
pub(crate) struct Hub<E> {
    listeners: Mutex<Listeners<E>>,
    /// The most events that wait for one listener. More are dropped, the oldest first.
    kept: usize,
    /// The event that reports how many were dropped.
    missed: fn(u64) -> E,
}

#[derive(Debug)]
struct Listeners<E> {
    queues: Vec<Weak<Mutex<Queue<E>>>>,
    ended: bool,
}

/// The events that a listener has not read yet.
#[derive(Debug)]
pub(crate) struct Unread<E>(Arc<Mutex<Queue<E>>>);

#[derive(Debug)]
struct Queue<E> {
    events: VecDeque<E>,
    kept: usize,
    dropped: u64,
    missed: fn(u64) -> E,
    ended: bool,
    waker: Option<Waker>,
}

impl<E> Hub<E> {
    pub(crate) fn new(kept: usize, missed: fn(u64) -> E) -> Self {
        Self { listeners: Mutex::new(Listeners { queues: Vec::new(), ended: false }), kept, missed }
    }

    /// Listens from now on. `before` returns the events that describe how things are.
    pub(crate) fn listen<I: IntoIterator<Item = E>>(&self, before: impl FnOnce() -> I) -> Unread<E> {
        let mut listeners = lock(&self.listeners);
        listeners.queues.retain(|queue| queue.strong_count() > 0);
        let (&Self { kept, missed, .. }, ended) = (self, listeners.ended);
        let mut queue = Queue { events: VecDeque::new(), kept, dropped: 0, missed, ended, waker: None };
        before().into_iter().for_each(|event| queue.add(event));
        let queue = Arc::new(Mutex::new(queue));
        listeners.queues.push(Arc::downgrade(&queue));
        Unread(queue)
    }

    /// Passes events to each listener.
    pub(crate) fn pass<I: IntoIterator<Item = E>>(&self, events: impl Fn() -> I) {
        self.pass_after(|| (), events);
    }

    /// Passes events to each listener, once `publish` has run. No listener is added in between.
    pub(crate) fn pass_after<I: IntoIterator<Item = E>>(
        &self,
        publish: impl FnOnce(),
        events: impl Fn() -> I,
    ) {
        self.change(|_| publish(), |queue| events().into_iter().for_each(|event| queue.add(event)));
    }

    /// No more events will come.
    pub(crate) fn end(&self) {
        self.change(|listeners| listeners.ended = true, |queue| queue.ended = true);
    }

    fn change(&self, first: impl FnOnce(&mut Listeners<E>), change: impl Fn(&mut Queue<E>)) {
        let mut listeners = lock(&self.listeners);
        first(&mut listeners);
        let mut wakers = Vec::new();
        listeners.queues.retain(|queue| match queue.upgrade() {
            Some(queue) => {
                let mut queue = lock(&queue);
                change(&mut queue);
                wakers.extend(queue.waker.take());
                true
            }
            None => false,
        });
        drop(listeners);
        // Not with the locks held: a waker may run anything.
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<E> Drop for Hub<E> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<E> Queue<E> {
    fn add(&mut self, event: E) {
        if self.events.len() == self.kept {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(event);
    }
}

impl<E> Unread<E> {
    /// The next event; `None` once all were read and no more will come.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<E>> {
        let mut queue = lock(&self.0);
        if queue.dropped > 0 {
            return Poll::Ready(Some((queue.missed)(std::mem::take(&mut queue.dropped))));
        }
        match queue.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if queue.ended => Poll::Ready(None),
            None => {
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_that_were_dropped_are_forgotten() {
        let hub = Hub::new(1, |_| ());
        for _ in 0..1000 {
            drop(hub.listen(|| []));
        }
        assert_eq!(lock(&hub.listeners).queues.len(), 1, "though nothing happens");
        drop(hub.listen(|| []));
        hub.pass(|| [()]);
        assert!(lock(&hub.listeners).queues.is_empty());
    }
}
