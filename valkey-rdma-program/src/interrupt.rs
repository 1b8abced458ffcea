//! Ctrl-C and SIGTERM: a program stops, and what it found is still reported.

use tokio_util::sync::CancellationToken;

use crate::signals::Signals;

/// Whether the user has asked to stop. Clones share it.
#[derive(Debug, Clone)]
pub struct Interrupt(CancellationToken);

impl Interrupt {
    /// The exit status of a process that was interrupted: 128 and the number of SIGINT.
    pub const EXIT_STATUS: u8 = 130;

    /// Receives Ctrl-C and SIGTERM from now on. The first one is reported here, the second one ends the process.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn listen() -> Interrupt {
        let asked = CancellationToken::new();
        if let Ok(mut signals) = Signals::to_stop() {
            let asked = asked.clone();
            tokio::spawn(async move {
                signals.next().await;
                asked.cancel();
                signals.next().await;
                std::process::exit(Interrupt::EXIT_STATUS.into());
            });
        }
        Interrupt(asked)
    }

    /// Interrupted when the token is cancelled.
    #[must_use]
    pub fn by_hand() -> (CancellationToken, Interrupt) {
        let asked = CancellationToken::new();
        (asked.clone(), Interrupt(asked))
    }

    /// Never interrupted; for tests.
    #[must_use]
    pub fn never() -> Interrupt {
        Interrupt(CancellationToken::new())
    }

    /// Whether the user has asked to stop.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the user asks to stop. Cancel safe.
    pub async fn asked(&self) {
        self.0.cancelled().await;
    }
}
