//! [`Opening`]: makes the connection while calls wait for it. One attempt is for all of them: when the server is away, they wait together, each
//! for as long as [`Config::offline_timeout`](crate::Config::offline_timeout) allows it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::Instant;

use crate::bulk::{Message, NotDirect, Orders, Request, Task};
use crate::endpoint::Transport;
use crate::error::{Error, LostCause, LostConnection};
use crate::link::RawConnection;
use crate::runtime::until;
use crate::server::Server;
use crate::stats::Purpose;

pub(super) struct Opening {
    server: Server,
    orders: Orders,
    waiting: VecDeque<Waiting>,
}

/// A call that waits for the connection.
struct Waiting {
    request: Request,
    /// Until when it waits for a server that is away. `None`: however long that takes.
    patience: Option<Instant>,
}

/// Why there is no connection.
enum Unopened {
    NotDirect(NotDirect),
    Failed(Error),
}

impl Opening {
    pub(super) fn new(server: Server, orders: Orders, first: Request) -> Self {
        let mut opening = Self { server, orders, waiting: VecDeque::new() };
        opening.add(first);
        opening
    }

    fn add(&mut self, request: Request) {
        let patience = self.server.patience(None);
        self.waiting.push_back(Waiting { request, patience });
    }

    /// Makes the connection, and drives it to its end.
    pub(super) async fn run(mut self) {
        match self.open().await {
            Ok(raw) => {
                let waiting = self.waiting.into_iter().map(|waiting| waiting.request);
                let task = Task::new(raw, self.server.connector(), self.orders, waiting.collect());
                // It holds no client, so that the last of its handles that is dropped ends it.
                drop(self.server);
                task.run().await;
            }
            Err(why) => {
                let Self { orders: Orders { mut messages, .. }, waiting, .. } = self;
                let fail = |request: Request| match &why {
                    Unopened::NotDirect(reason) => request.goes_over_the_stream(reason.clone()),
                    Unopened::Failed(error) => request.fails(error.clone()),
                };
                messages.close();
                waiting.into_iter().for_each(|waiting| fail(waiting.request));
                // Waits for senders in the middle of it.
                while let Some(message) = messages.recv().await {
                    message.into_request().into_iter().for_each(fail);
                }
            }
        }
    }

    async fn open(&mut self) -> Result<RawConnection, Unopened> {
        let shared = self.server.info();
        let raw = self.connect().await.map_err(Unopened::Failed)?;
        // With `fallback=tcp`, RDMA may have failed this time. The next call tries it again.
        if matches!(raw.info.transport, Transport::Tcp | Transport::Unix) {
            return Err(Unopened::NotDirect(NotDirect::NotRdma));
        }
        if !raw.socket.may_expose() {
            self.server.bulk().not_offered(shared);
            return Err(Unopened::NotDirect(NotDirect::NotOffered));
        }
        Ok(raw)
    }

    /// Connects for as long as a call waits.
    async fn connect(&mut self) -> Result<RawConnection, Error> {
        loop {
            let patience = self.waiting.front().and_then(|first| first.patience);
            let error = match self.connect_until(patience).await {
                Ok(raw) => return Ok(raw),
                Err(error) => error,
            };
            let now = Instant::now();
            if patience.is_none_or(|patience| patience > now) {
                return Err(error);
            }
            // Calls that have come later wait on.
            for Waiting { request, patience } in mem::take(&mut self.waiting) {
                match patience.is_some_and(|patience| patience <= now) {
                    true => request.fails(error.clone()),
                    false => self.waiting.push_back(Waiting { request, patience }),
                }
            }
            if self.waiting.is_empty() {
                return Err(error);
            }
        }
    }

    /// Connects for as long as a call waits. `patience`: until when, if the server is away.
    async fn connect_until(&mut self, patience: Option<Instant>) -> Result<RawConnection, Error> {
        let server = self.server.clone();
        let mut connected = pin!(server.connect_another_until(Purpose::Bulk, patience));
        let cause = loop {
            let due = self.waiting.iter().filter_map(|waiting| Some(waiting.request.deadline?.at)).min();
            tokio::select! {
                connected = &mut connected => return connected.map(|(raw, _connecting)| raw),
                message = self.orders.messages.recv() => match message {
                    Some(Message::Begin(request)) => self.add(request),
                    Some(Message::Close(_)) | None => break LostCause::Closed,
                    Some(Message::GiveUp) => break LostCause::Moved,
                },
                () = until(due) => self.end_late(),
                () = some_gone(&mut self.waiting) => {}
            }
            if self.waiting.is_empty() {
                // A call that comes at this moment tries again.
                break LostCause::Cancelled;
            }
        };
        Err(LostConnection { cause: Arc::new(cause), may_have_run: false, ..server.lost_error() }.into())
    }

    fn end_late(&mut self) {
        for waiting in mem::take(&mut self.waiting) {
            match waiting.request.deadline.filter(|deadline| deadline.has_passed()) {
                Some(deadline) => waiting.request.fails(self.server.late(deadline)),
                None => self.waiting.push_back(waiting),
            }
        }
    }
}

/// Removes the requests whose callers have gone away, as soon as there is one. Wherever it waits, its slices go back to their memory at once.
async fn some_gone(waiting: &mut VecDeque<Waiting>) {
    poll_fn(|cx| {
        let before = waiting.len();
        waiting.retain_mut(|waiting| waiting.request.caller.poll_gone(cx).is_pending());
        if waiting.len() < before { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
