//! Bytes between the client and its session.

use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Buf;
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::{Closed, Session};
use crate::config::limits::Limits;

impl Session {
    /// Reads once. Ready with an error if the connection is broken.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let read = pin!(self.stream.read_buf(self.reader.room())).poll(cx);
        match read {
            Poll::Pending => {
                self.reader.rest();
                return Poll::Pending;
            }
            Poll::Ready(Ok(0)) => {
                self.eof = true;
                self.client.leave();
            }
            Poll::Ready(Ok(_)) => self.slow_reader.sent(),
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Closed)),
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what the client sends while it waits, as much as is kept of a command: so its end is noticed. Ready if the connection is
    /// broken.
    pub(super) fn poll_read_ahead(&mut self, cx: &mut Context<'_>, limits: &Limits) -> Poll<Closed> {
        while !self.eof && self.reader.len() < limits.command_bytes {
            match ready!(self.poll_read(cx)) {
                Ok(()) => {}
                Err(Closed) => return Poll::Ready(Closed),
            }
        }
        self.drive_unread(cx);
        Poll::Pending
    }

    /// Drives the device of a client from which nothing is read: nothing else sends what its window had no room for, or notices its end.
    /// Commands that came before the end are still read. True if the client has just left.
    pub(super) fn drive_unread(&mut self, cx: &mut Context<'_>) -> bool {
        self.stream.drive(cx);
        let has_left = self.stream.close_error().is_some() && !self.client.inbox.has_left();
        if has_left {
            self.client.leave();
        }
        has_left
    }

    /// Writes what waits for the client. Ready if something was written and nothing is left, or with an error if the connection is
    /// broken.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        if !self.out.has_remaining() && !self.unflushed {
            return Poll::Pending;
        }
        while self.out.has_remaining() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.out.chunks_vectored(&mut slices);
            let written = match &slices[..count] {
                [slice] => Pin::new(&mut self.stream).poll_write(cx, slice),
                slices => Pin::new(&mut self.stream).poll_write_vectored(cx, slices),
            };
            match ready!(written) {
                Ok(0) | Err(_) => return Poll::Ready(Err(Closed)),
                Ok(len) => {
                    self.slow_reader.took(len);
                    self.client.inbox.wrote(len);
                    self.out.advance(len);
                    self.unflushed = true;
                }
            }
        }
        if ready!(Pin::new(&mut self.stream).poll_flush(cx)).is_err() {
            return Poll::Ready(Err(Closed));
        }
        self.unflushed = false;
        if let Some(since) = self.out_since.take() {
            self.metrics().reply_hop.record(since, Instant::now(), 1);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the last replies, as far as the client takes them in time, unless another client has its place.
    pub(super) async fn flush(&mut self) {
        self.client.keep_place();
        if self.client.inbox.has_given_way() {
            return;
        }
        let limit = self.core.limits().slow_reader();
        let flushed = poll_fn(|cx| {
            loop {
                if self.client.inbox.is_lost() {
                    // The server's last replies come before its end.
                    self.client.inbox.poll_take(cx, &mut self.out);
                }
                if !self.out.has_remaining() && !self.unflushed {
                    return Poll::Ready(());
                }
                if let Err(Closed) = ready!(self.poll_flush(cx)) {
                    return Poll::Ready(());
                }
            }
        });
        // A client that does not read its last reply has lost it.
        let _ = tokio::time::timeout(limit, flushed).await;
        // A client that was ended gets no time.
        if !self.client.inbox.has_ended() || self.client.inbox.is_lost() {
            self.stream.end_with(b"").await;
        }
    }
}

/// Slices of one write.
const SLICES: usize = 16;
