//! Ctrl-C and SIGTERM: a test stops, and what it measured is still reported.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Tells, to any number of holders, whether the user has asked to stop.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    asked: watch::Receiver<bool>,
}

impl Interrupt {
    /// From now on Ctrl-C and SIGTERM no longer end the process but are told here. A second one ends it at once.
    ///
    /// Must be called within a tokio runtime.
    pub(crate) fn listen() -> Interrupt {
        let (ask, asked) = watch::channel(false);
        if let (Ok(interrupt), Ok(terminate)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        {
            tokio::spawn(async move {
                let mut signals = (interrupt, terminate);
                either(&mut signals).await;
                let _ = ask.send(true);
                either(&mut signals).await;
                std::process::exit(Interrupt::EXIT_STATUS.into());
            });
        }
        Interrupt { asked }
    }

    /// The exit status of a process that was interrupted: 128 and the number of SIGINT.
    pub(crate) const EXIT_STATUS: u8 = 130;

    /// Never interrupted; for tests.
    #[cfg(test)]
    pub(crate) fn never() -> Interrupt {
        Interrupt { asked: watch::channel(false).1 }
    }

    /// Interrupted when `true` is sent; for tests.
    #[cfg(test)]
    pub(crate) fn by_hand() -> (watch::Sender<bool>, Interrupt) {
        let (ask, asked) = watch::channel(false);
        (ask, Interrupt { asked })
    }

    /// Whether the user has asked to stop.
    pub(crate) fn is_asked(&self) -> bool {
        *self.asked.borrow()
    }

    /// Waits until the user asks to stop; forever if that never happens.
    ///
    /// Cancel safe: it only looks.
    pub(crate) async fn asked(&self) {
        let mut asked = self.asked.clone();
        if asked.wait_for(|&asked| asked).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn either((interrupt, terminate): &mut (Signal, Signal)) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
