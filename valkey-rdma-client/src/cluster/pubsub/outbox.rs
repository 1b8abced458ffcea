//! [`Outbox`]: events of one lane on their way to the program, which may have no room for them yet.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::pubsub::Event;

/// Events that wait for room in the program's queue.
pub(super) struct Outbox {
    events: mpsc::Sender<Event>,
    waiting: VecDeque<Event>,
}

impl Outbox {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Self {
        Self { events, waiting: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, event: Event) {
        self.waiting.push_back(event);
    }

    /// Adds an event that says the same when it comes later. A repeated one replaces the earlier, so they stay few.
    pub(super) fn report(&mut self, event: Event) {
        self.waiting.retain(|waiting| *waiting != event);
        self.waiting.push_back(event);
    }

    /// Waits for room, and passes the events on. Ends with the last one.
    ///
    /// Cancel safe: loses no event.
    pub(super) async fn flush(&mut self) {
        while !self.waiting.is_empty() {
            // If the program has dropped the queue, the lane ends.
            let Ok(room) = self.events.reserve().await else { return std::future::pending().await };
            if let Some(event) = self.waiting.pop_front() {
                room.send(event);
            }
        }
    }
}
