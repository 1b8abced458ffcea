//! Ctrl-C and SIGTERM: what was measured is still printed.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives Ctrl-C and SIGTERM from the moment it is made, instead of the system's default of ending the process.
pub(crate) struct Interrupt(Option<(Signal, Signal)>);

impl Interrupt {
    /// Must be called within a tokio runtime.
    pub(crate) fn listen() -> Self {
        let interrupt = signal(SignalKind::interrupt());
        Self(interrupt.ok().zip(signal(SignalKind::terminate()).ok()))
    }

    /// Waits until the user asks to stop.
    pub(crate) async fn asked(&mut self) {
        let Some((interrupt, terminate)) = &mut self.0 else {
            // Without a handler the signals end the process.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
