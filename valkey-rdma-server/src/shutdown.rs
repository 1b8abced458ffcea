//! The word that a server is to stop, told to everything it runs.

use tokio::sync::watch;

/// Says it.
#[derive(Debug)]
pub(crate) struct Stopper(watch::Sender<bool>);

/// Hears it.
#[derive(Debug, Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stopper {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn stop(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn listener(&self) -> Stop {
        Stop(self.0.subscribe())
    }
}

impl Stop {
    /// Waits until the server is to stop.
    pub(crate) async fn requested(&mut self) {
        // A sender that is gone says stop too: nobody is left who could say anything else.
        drop(self.0.wait_for(|stop| *stop).await);
    }
}
