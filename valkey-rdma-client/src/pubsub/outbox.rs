//! [`Outbox`]: events of one connection on their way to the program, which may have no room for them yet.

use std::collections::VecDeque;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendError, TrySendError};

use super::Event;

/// Events that wait for room in the program's queue.
pub(crate) struct Outbox {
    events: mpsc::Sender<Event>,
    waiting: VecDeque<Event>,
}

impl Outbox {
    pub(crate) fn new(events: mpsc::Sender<Event>) -> Self {
        Self { events, waiting: VecDeque::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.waiting.push_back(event);
    }

    /// Adds an event that says the same when it comes later. A repeated one replaces the earlier, so they stay few.
    pub(crate) fn report(&mut self, event: Event) {
        self.waiting.retain(|waiting| *waiting != event);
        self.waiting.push_back(event);
    }

    /// Adds one to the messages that find no room here.
    pub(crate) fn miss(&mut self) {
        match self.waiting.back_mut() {
            Some(Event::Missed(count)) => *count += 1,
            _ => self.waiting.push_back(Event::Missed(1)),
        }
    }

    /// Passes an event on behind those that wait. Gives it back if there is no room, or the program has dropped the queue.
    pub(crate) fn send_now(&mut self, event: Event) -> Result<(), TrySendError<Event>> {
        while let Some(first) = self.waiting.pop_front() {
            if let Err(refused) = self.events.try_send(first) {
                self.waiting.push_front(refused.into_inner());
                return Err(TrySendError::Full(event));
            }
        }
        self.events.try_send(event)
    }

    /// Waits for room, and passes the events on. Completes with the last one; never if the program has dropped the queue.
    ///
    /// Cancel safe: loses no event.
    pub(crate) async fn flush(&mut self) {
        if self.pass_on().await.is_err() {
            std::future::pending().await
        }
    }

    /// Passes the events on as [`flush`](Self::flush) does. Completes when the program has dropped the queue.
    ///
    /// Cancel safe: loses no event.
    pub(crate) async fn flush_until_dropped(&mut self) {
        if self.pass_on().await.is_ok() {
            self.events.closed().await;
        }
    }

    async fn pass_on(&mut self) -> Result<(), SendError<()>> {
        while !self.waiting.is_empty() {
            let room = self.events.reserve().await?;
            if let Some(event) = self.waiting.pop_front() {
                room.send(event);
            }
        }
        Ok(())
    }
}
