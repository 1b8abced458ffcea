//! Accepts clients, as many as there may be, and refuses the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

use crate::core::Core;
use crate::listen::{Accepted, Bound};
use crate::pipe;
use crate::route::{Route, Share};
use crate::seldom::Seldom;
use crate::session::Session;

/// Accepts clients until `close`, or until the listener has ended.
pub(crate) async fn accept(
    mut bound: Bound,
    core: Arc<Core>,
    route: watch::Receiver<Arc<Route>>,
    sessions: TaskTracker,
    close: CancellationToken,
) {
    let failures = Seldom::every(FAILURES);
    loop {
        let accepted = tokio::select! {
            () = close.cancelled() => return,
            accepted = bound.accept() => accepted,
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error) if error.is_end() => {
                error!(%error, address = %bound.address(), "the listener has ended");
                return;
            }
            Err(error) => {
                if let Some(unlogged) = failures.pass(Instant::now()) {
                    let advice = error.advice();
                    warn!(%error, address = %bound.address(), unlogged, "a client was not accepted{advice}");
                }
                // Most likely a shortage: the next accept would fail at once.
                sleep(PAUSE).await;
                continue;
            }
        };
        let (route, core) = (route.borrow().clone(), core.clone());
        let metrics = &route.pool.server.metrics;
        if core.is_full() {
            metrics.refused.add(1);
            report_refusal(&core, &accepted.peer);
            let permit = core.refusing.clone().acquire_owned().await;
            sessions.spawn(held(permit, refuse(accepted)));
            continue;
        }
        metrics.accepted.add(1);
        let place = core.places.clone();
        match route.share {
            Share::Never => sessions.spawn(held(place, pipe::run(core, route, accepted))),
            Share::Auto | Share::Always => {
                sessions.spawn(held(place, Session::new(core, route, accepted).run()))
            }
        };
    }
}

/// Does `work` while it holds `place`.
async fn held<T>(place: T, work: impl Future<Output = ()>) {
    work.await;
    drop(place);
}

/// Logs that there are too many clients.
fn report_refusal(core: &Core, peer: &str) {
    let Some(unlogged) = core.refused_clients.pass(Instant::now()) else { return };
    let (most, configured) = (core.most_clients(), core.limits().clients);
    let advice = match most < configured {
        true => "raise LimitNOFILE= of the unit (in a shell ulimit -Hn)",
        false => "raise limits.clients",
    };
    warn!(peer, most, unlogged, "max number of clients reached: a client was refused; {advice}");
}

/// Says that there are too many clients, and closes.
async fn refuse(mut accepted: Accepted) {
    let refusal = async {
        // The client may be gone already.
        let _ = accepted.stream.write_all(b"-ERR max number of clients reached\r\n").await;
        let _ = accepted.stream.shutdown().await;
    };
    let _ = timeout(REFUSAL, refusal).await;
}

/// A shortage lasts: each of its attempts fails, and the log has one line in this time.
const FAILURES: Duration = Duration::from_secs(5);
/// The pause after an error of a listener.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a refusal may take.
const REFUSAL: Duration = Duration::from_secs(1);
