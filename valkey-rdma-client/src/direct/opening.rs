//! [`Opening`]: makes the connection while calls wait for it. One attempt is for all of them: when the server is away, they wait together.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::mpsc;

use crate::bulk::{Message, NotDirect, Request, Task, earliest, passed};
use crate::endpoint::Transport;
use crate::error::{Error, LostCause, LostConnection};
use crate::link::RawConnection;
use crate::server::Server;
use crate::stats::Purpose;

pub(super) struct Opening {
    server: Server,
    messages: mpsc::UnboundedReceiver<Message>,
    waiting: VecDeque<Request>,
}

/// Why there is no connection.
enum Unopened {
    NotDirect(NotDirect),
    Failed(Error),
}

impl Opening {
    pub(super) fn new(server: Server, messages: mpsc::UnboundedReceiver<Message>, first: Request) -> Self {
        Self { server, messages, waiting: VecDeque::from([first]) }
    }

    /// Makes the connection, and drives it to its end.
    pub(super) async fn run(mut self) {
        match self.open().await {
            Ok(raw) => {
                let task = Task::new(raw, self.server.connector(), self.messages, self.waiting);
                // It holds no client, so that the last of its handles that is dropped ends it.
                drop(self.server);
                task.run().await;
            }
            Err(why) => {
                self.messages.close();
                // Waits for senders in the middle of it.
                while let Some(message) = self.messages.recv().await {
                    self.waiting.extend(message.into_request());
                }
                for request in self.waiting {
                    match &why {
                        Unopened::NotDirect(reason) => request.goes_over_the_stream(reason.clone()),
                        Unopened::Failed(error) => request.fails(error.clone()),
                    }
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
        let server = self.server.clone();
        let mut connected = pin!(server.connect_another(Purpose::Bulk));
        let cause = loop {
            let due = earliest(self.waiting.iter().filter_map(|request| request.deadline));
            tokio::select! {
                connected = &mut connected => return connected,
                message = self.messages.recv() => match message {
                    Some(Message::Begin(request)) => self.waiting.push_back(request),
                    Some(Message::Close(_)) | None => break LostCause::Closed,
                    Some(Message::GiveUp) => break LostCause::Moved,
                },
                _ = passed(due) => self.end_late(),
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
        for request in mem::take(&mut self.waiting) {
            match request.deadline.filter(|deadline| deadline.has_passed()) {
                Some(deadline) => request.fails(self.server.late(deadline)),
                None => self.waiting.push_back(request),
            }
        }
    }
}

/// Removes the requests whose callers have gone away, as soon as there is one. Wherever it waits, its slices go back to their memory at once.
async fn some_gone(waiting: &mut VecDeque<Request>) {
    poll_fn(|cx| {
        let before = waiting.len();
        waiting.retain_mut(|request| request.caller.poll_gone(cx).is_pending());
        if waiting.len() < before { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
