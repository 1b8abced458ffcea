//! [`Signals`]: those that ask a program to stop, or to read its configuration again.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that a program receives instead of ending.
#[derive(Debug)]
pub struct Signals(Vec<Signal>);

impl Signals {
    /// Receives Ctrl-C and SIGTERM from now on.
    ///
    /// # Errors
    /// That of the operating system.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn to_stop() -> io::Result<Self> {
        Self::of(&[SignalKind::interrupt(), SignalKind::terminate()])
    }

    /// Receives SIGHUP from now on: the program reads its configuration again.
    ///
    /// # Errors
    /// That of the operating system.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn to_reload() -> io::Result<Self> {
        Self::of(&[SignalKind::hangup()])
    }

    fn of(kinds: &[SignalKind]) -> io::Result<Self> {
        kinds.iter().map(|kind| signal(*kind)).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next one of them. Cancel safe.
    pub async fn next(&mut self) {
        poll_fn(|context| match self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}
