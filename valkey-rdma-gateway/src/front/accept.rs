//! Accepts clients, as many as there may be, and refuses the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};
use valkey_rdma_program::error_chain;

use crate::config::route::{Route, Share};
use crate::core::Core;
use crate::front::listen::Bound;
use crate::observe::seldom::Seldom;
use crate::session::Session;
use crate::session::pipe;

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
                let error = error_chain(&error);
                error!(%error, address = %bound.address(), "the listener has ended");
                return;
            }
            Err(error) => {
                if let Some(unlogged) = failures.pass(Instant::now()) {
                    let (advice, error) = (error.advice(), error_chain(&error));
                    warn!(%error, address = %bound.address(), unlogged, "a client was not accepted{advice}");
                }
                // Most likely a shortage: the next accept would fail at once.
                sleep(PAUSE).await;
                continue;
            }
        };
        let (route, core) = (route.borrow().clone(), core.clone());
        let metrics = &route.backend.server.metrics;
        // Otherwise the clients of a frozen server, which give up and come again, would take all places.
        if core.is_full() && !core.clients.end_one_that_has_left() {
            metrics.refused.add(1);
            report_refusal(&core, &accepted.peer);
            let refusal = tokio::select! {
                () = close.cancelled() => return,
                refusal = core.refusing.begin() => refusal,
            };
            sessions.spawn(async move {
                // A route with such a listener has certificates.
                let tls = route.tls.as_ref().filter(|_| accepted.needs_tls);
                refusal.reply(accepted.stream, tls).await;
            });
            continue;
        }
        metrics.accepted.add(1);
        let place = core.places.clone();
        match route.share {
            Share::Never => sessions.spawn(held(place, pipe::run(core, route, accepted))),
            Share::Auto => sessions.spawn(held(place, Session::new(core, route, accepted).run())),
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

/// A shortage lasts: each of its attempts fails, and the log has one line in this time.
const FAILURES: Duration = Duration::from_secs(5);
/// The pause after an error of a listener.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;
    use tokio::time::timeout;

    use super::*;
    use crate::config::limits::Limits;
    use crate::front::activation::Activation;
    use crate::front::listen::Listen;
    use crate::front::refusals::AT_ONCE;
    use crate::upstream::backend::{Backend, Origin};

    #[tokio::test]
    async fn a_listener_closes_while_a_client_waits_for_its_refusal() {
        let limits = Limits { clients: 0, ..Limits::default() };
        let core = Arc::new(Core::new(limits.clone()));
        let servers = vec!["valkey://127.0.0.1:1".to_owned()];
        let origin = Origin { servers, cluster: false, user: None, password_file: None };
        let backend = Arc::new(Backend::new(origin, None, &limits, 2, core.clone()).unwrap());
        let metrics = backend.server.metrics.clone();
        let route = Route { backend, share: Share::Auto, tls: None, direct_prefix: None };
        let (_changes, route) = watch::channel(Arc::new(route));
        let path = std::env::temp_dir().join(format!("vrg-accept-{}.sock", std::process::id()));
        let bound =
            Bound::bind(&Listen::Unix(path.clone()), &Activation::default(), &Limits::default(), None)
                .await
                .unwrap();
        let mut all = Vec::new();
        for _ in 0..AT_ONCE {
            all.push(core.refusing.begin().await);
        }
        let close = CancellationToken::new();
        let accepting = tokio::spawn(accept(bound, core, route, TaskTracker::new(), close.clone()));
        let _client = UnixStream::connect(&path).await.unwrap();
        while metrics.refused.get() == 0 {
            tokio::task::yield_now().await;
        }
        close.cancel();
        timeout(PATIENCE, accepting).await.expect("the listener has closed").unwrap();
    }

    /// Only a failing test waits for it.
    const PATIENCE: Duration = Duration::from_secs(60);
}
