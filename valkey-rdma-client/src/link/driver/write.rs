//! Batches: filled from the queue, encoded, and written on the connection task or on a caller's.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use valkey_rdma_transport::AnyStream;

use super::{Driver, MAX_BATCHES_IN_FLIGHT, MAX_IN_FLIGHT};
use crate::command::Commands;
use crate::link::request::Request;
use crate::link::submit::Load;

impl Driver {
    /// Sends what waits, on the task of a caller that [must](crate::link::submit::Pushed::MustSend). The connection task
    /// waits for the reply anyway. It also writes what the stream does not take at once.
    ///
    /// # Panics
    /// If the stream does, which may be the user's own. The connection then ends, as it would on the connection task.
    pub(crate) fn send_inline(&mut self) {
        // Streams of the program may rely on their runtime; the caller's thread may have none. Ours do not, to write.
        let is_ours = matches!(self.raw.socket, AnyStream::Tcp(_)) || self.raw.socket.is_driven();
        let runtime = (!is_ours).then(|| self.raw.runtime.clone());
        let _entered = runtime.as_ref().map(Handle::enter);
        let task = std::mem::replace(&mut self.task, Waker::noop().clone());
        let mut cx = Context::from_waker(&task);
        let sent = catch_unwind(AssertUnwindSafe(|| {
            loop {
                self.write_batch(&mut cx)?;
                if let Ok(timer) = self.sleep(&cx) {
                    return Ok(timer.is_none_or(|at| self.timer.fires_by(at)));
                }
            }
        }));
        self.task = task;
        match sent {
            Ok(Ok(true)) if !self.writing => return,
            // The connection task writes the rest, or sets its timer for a caller that pushed meanwhile.
            Ok(Ok(_)) => {}
            Ok(Err(error)) => self.write_error = Some(error),
            Err(panic) => {
                self.write_error = Some(io::Error::other("the stream panicked"));
                // It may have written any part of the commands of other callers too.
                self.raw.write_buffer.assume_written();
                self.task.wake_by_ref();
                resume_unwind(panic);
            }
        }
        self.task.wake_by_ref();
    }

    /// Fills and writes batches until no request waits, the stream is full, or the rest is held back.
    pub(super) fn write_batches(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.write_batch(cx)? {}
        Ok(())
    }

    /// Goes on with the batch that is being written, or begins the next. Returns true if all of one was written.
    fn write_batch(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if let Some(error) = self.write_error.take() {
            return Err(error);
        }
        let written = if self.writing {
            self.raw.poll_flush(cx)?
        } else {
            let load = self.fill_batch();
            if load.commands == 0 {
                return Ok(false);
            }
            self.poll_end_batch(cx, load)?
        };
        self.writing = written.is_pending();
        Ok(!self.writing)
    }

    /// Takes the next batch from the queue, and returns its load: nothing if none waits, or none that may leave now.
    fn fill_batch(&mut self) -> Load {
        let only_full = self.in_flight.batches() >= MAX_BATCHES_IN_FLIGHT;
        let most = MAX_IN_FLIGHT.saturating_sub(self.in_flight.commands());
        let mut position = self.raw.write_buffer.pushed();
        let mut batch = Load::default();
        let mut late = Vec::new();
        let add = |request: Request| {
            batch = batch + request.load;
            position = self.in_flight.push(request, position);
        };
        let ending = self.queue.take(only_full, most, add, &mut late);
        self.ending = ending.or(self.ending);
        if !late.is_empty() {
            self.fail_late(late);
        }
        batch
    }

    /// Ends the batch and encodes it: straight into the send buffer if possible, otherwise into the write buffer, which
    /// keeps large values of a [`BufferPool`](valkey_rdma_transport::BufferPool) where they are. Ready when all of it was
    /// accepted by the stream.
    fn poll_end_batch(&mut self, cx: &mut Context<'_>, batch: Load) -> Poll<io::Result<()>> {
        let in_flight = &self.in_flight;
        let written = if in_flight.unencoded().any(Commands::has_shared_bytes) {
            Ok(false)
        } else {
            self.raw.write_directly(cx, batch.bytes, &mut |room| {
                in_flight.unencoded().fold(0, |at, commands| at + commands.copy_to(&mut room[at..]))
            })
        };
        if let Ok(false) = written {
            in_flight.unencoded().for_each(|commands| self.raw.write_buffer.push_all(commands));
        }
        self.in_flight.end_batch();
        self.writing = true;
        self.progress += 1;
        self.state.counters.batch(batch.commands, self.in_flight.commands());
        if written? { Poll::Ready(Ok(())) } else { self.raw.poll_flush(cx) }
    }
}
