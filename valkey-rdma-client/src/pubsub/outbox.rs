//! [`Outbox`]: events of one connection on their way to the program, which may have no room for them yet.

use std::collections::VecDeque;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::Event;

/// Events that wait for room in the program's queue.
pub(super) struct Outbox {
    events: mpsc::Sender<Event>,
    waiting: VecDeque<Event>,
}

impl Outbox {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Self {
        Self { events, waiting: VecDeque::new() }
    }

    /// Adds an event that says the same when it comes later. A repeated one replaces the earlier, so they stay few.
    pub(super) fn report(&mut self, event: Event) {
        for waiting in std::mem::take(&mut self.waiting) {
            match (self.waiting.back_mut(), waiting) {
                // What stood between them has moved.
                (Some(Event::Missed(before)), Event::Missed(count)) => *before += count,
                (_, waiting) if waiting != event => self.waiting.push_back(waiting),
                _ => {}
            }
        }
        self.waiting.push_back(event);
    }

    /// Adds one to the messages that find no room here.
    pub(super) fn miss(&mut self) {
        match self.waiting.back_mut() {
            Some(Event::Missed(count)) => *count += 1,
            _ => self.waiting.push_back(Event::Missed(1)),
        }
    }

    /// Passes an event on behind those that wait. Gives it back if there is no room, or the program has dropped the queue.
    pub(super) fn send_now(&mut self, event: Event) -> Result<(), TrySendError<Event>> {
        while let Some(first) = self.waiting.pop_front() {
            if let Err(refused) = self.events.try_send(first) {
                self.waiting.push_front(refused.into_inner());
                return Err(TrySendError::Full(event));
            }
        }
        self.events.try_send(event)
    }

    /// Passes the events on as there is room for them. Completes when the program has dropped the queue.
    ///
    /// Cancel safe: loses no event.
    pub(super) async fn flush_until_dropped(&mut self) {
        while !self.waiting.is_empty() {
            let Ok(room) = self.events.reserve().await else { return };
            if let Some(event) = self.waiting.pop_front() {
                room.send(event);
            }
        }
        self.events.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_never_reads_keeps_as_many_events_however_often_the_connection_is_lost() {
        let (sender, mut events) = mpsc::channel(8);
        let mut outbox = Outbox::new(sender);
        for _ in 0..1000 {
            outbox.miss();
            outbox.report(Event::Reconnected);
            outbox.miss();
        }
        assert_eq!(outbox.waiting, [Event::Missed(1999), Event::Reconnected, Event::Missed(1)]);
        outbox.send_now(Event::Missed(7)).expect("room");
        assert_eq!(events.try_recv().expect("the first"), Event::Missed(1999));
    }
}
