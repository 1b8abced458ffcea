//! Connecting again after a loss.

use std::future::Future;
use std::time::{Duration, Instant};

use super::dial::DialError;
use super::job::Run;

/// The pause before the second attempt; it doubles from one to the next.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Tries to connect until it works. `None`: the job is over, or its patience is.
pub(super) async fn connect_again<C, F>(run: &Run, dial: impl Fn() -> F) -> Option<C>
where
    F: Future<Output = Result<C, DialError>>,
{
    let begin = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        if run.is_over(run.now()) || run.is_drained() {
            return None;
        }
        match dial().await {
            Ok(connection) => return Some(connection),
            Err(_) if begin.elapsed() >= run.job.patience => {
                run.give_up();
                return None;
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
