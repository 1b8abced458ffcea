//! [`Engine`]: what the clients of this module share; it knows nothing of Python.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::sleep;
use valkey_rdma_client::{Command, Config, Error, Fetched, Value};

use crate::errors::Failure;
use crate::lane_sets::LaneSets;
use crate::registration::Registrations;
use crate::server::{Server, Target};
use crate::transfer::{Fit, Item, Load, PerKey, Store, send_all};

/// A client of one server or a cluster, and its lanes for large values.
pub(crate) struct Engine {
    pub(crate) server: Server,
    lanes: Arc<LaneSets>,
    pub(crate) registrations: Arc<Registrations>,
    /// How long a batch may take, unless the call says otherwise.
    timeout: Option<Duration>,
    closed: AtomicBool,
}

impl Engine {
    pub(crate) async fn connect(
        target: Target,
        config: Config,
        lanes: usize,
        timeout: Option<Duration>,
    ) -> Result<Arc<Self>, Failure> {
        let server = Server::connect(target, config).await?;
        let lanes = Arc::new(LaneSets::new(&server, lanes));
        let registrations = Arc::default();
        Ok(Arc::new(Self { server, lanes, registrations, timeout, closed: AtomicBool::new(false) }))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes the connections, after the replies to what was sent.
    pub(crate) async fn close(self: Arc<Self>) -> Result<(), Failure> {
        self.closed.store(true, Ordering::Release);
        self.lanes.close();
        self.server.close().await;
        Ok(())
    }

    pub(crate) async fn execute(self: Arc<Self>, command: Command) -> Result<Value, Failure> {
        Ok(self.server.execute(command).await?)
    }

    /// Sends a blocking command on a connection of its own.
    pub(crate) async fn block(
        self: Arc<Self>,
        arguments: Vec<Bytes>,
        limit: Option<Duration>,
    ) -> Result<Value, Failure> {
        within(limit, pending::<()>(), async { Ok(self.server.block(arguments).await?) }).await
    }

    /// Sends commands together.
    pub(crate) async fn pipeline(
        self: Arc<Self>,
        commands: Vec<Command>,
        limit: Option<Duration>,
    ) -> Result<Vec<Result<Value, Error>>, Failure> {
        Ok(self.server.pipeline(commands, limit).await?)
    }

    /// As [`count_each`](Self::count_each), of which the first failure is that of all.
    pub(crate) async fn count_all(
        self: Arc<Self>,
        name: &'static str,
        keys: Vec<Bytes>,
        limit: Option<Duration>,
    ) -> Result<Vec<bool>, Failure> {
        let counted = self.count_each(name, keys, limit).await?;
        Ok(counted.into_iter().collect::<Result<_, _>>()?)
    }

    /// Sends a command for each key, whose reply is a number: of EXISTS, of UNLINK. True where it is not 0.
    pub(crate) async fn count_each(
        self: Arc<Self>,
        name: &'static str,
        keys: Vec<Bytes>,
        limit: Option<Duration>,
    ) -> Result<PerKey<bool>, Failure> {
        let commands = keys.iter().map(|key| Command::new(name).arg(key).idempotent()).collect();
        let replies = self.pipeline(commands, limit).await?;
        let found = |value: Value| value.as_int().is_some_and(|count| count > 0);
        Ok(replies.into_iter().map(|reply| reply.map(found)).collect())
    }

    /// Reads the value of each key straight into its memory. Ends early when `stop` is ready.
    pub(crate) async fn load(
        self: Arc<Self>,
        loads: Vec<Load>,
        fit: Fit,
        limit: Option<Duration>,
        stop: impl Future,
    ) -> Result<PerKey<Fetched>, Failure> {
        self.send(loads, fit, limit, stop).await
    }

    /// Sends the values from where they are. With `ttl`, in milliseconds, the server forgets them after that time. Ends early when
    /// `stop` is ready.
    pub(crate) async fn store(
        self: Arc<Self>,
        mut stores: Vec<Store>,
        ttl: Option<u64>,
        limit: Option<Duration>,
        stop: impl Future,
    ) -> Result<PerKey<()>, Failure> {
        for store in &mut stores {
            store.value = self.registrations.lend(std::mem::take(&mut store.value));
        }
        self.send(stores, ttl, limit, stop).await
    }

    async fn send<T: Item>(
        &self,
        items: Vec<T>,
        common: T::Common,
        limit: Option<Duration>,
        stop: impl Future,
    ) -> Result<PerKey<T::Outcome>, Failure> {
        let mut workers = JoinSet::new();
        let sending = async { Ok(send_all(&self.lanes, &mut workers, items, common).await) };
        let sent = within(limit.or(self.timeout), stop, sending).await;
        // Those of a batch that ended early may still be writing.
        workers.shutdown().await;
        sent
    }
}

/// Drops the work after this time, or when `stop` is ready.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    stop: impl Future,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late = async {
        match limit {
            Some(limit) => {
                sleep(limit).await;
                Failure::Late(limit)
            }
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        _ = stop => Err(Failure::Closed),
        late = late => Err(late),
    }
}
