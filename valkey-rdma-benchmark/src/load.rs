//! [`Load`]: a load on one server, for programs and tests.

use std::num::NonZeroU64;
use std::pin::pin;

use valkey_rdma_client::Endpoint;
use valkey_rdma_program::Interrupt;

use crate::drive::{Arrivals, FleetError, Limit, Pace, Target, Verify};
use crate::measure::{Shape, TestResult};
use crate::run::{Plan, Progress, Session};
use crate::workload::{Distribution, Keys, Script, Sizes, TestOptions, Values, tests_from_list};

/// A load on one server: what is sent, on which connections, until when.
///
/// The connections run on a thread of their own. Every reply is checked, and every latency recorded, from sending the command to the last byte of
/// its reply. Keys that a test reads are written first. Connections that are lost are opened anew; the result has the outages.
///
/// ```no_run
/// use std::time::Duration;
/// use valkey_rdma_benchmark::{Limit, Load};
///
/// # async fn load() -> Result<(), Box<dyn std::error::Error>> {
/// let load = Load::new("rdma://192.168.1.1:6379".parse()?)
///     .connections(2)
///     .tasks_per_connection(50)
///     .limit(Limit::Time(Duration::from_secs(10)));
/// for result in load.tests("set,get").await? {
///     assert!(result.is_right(), "{:?}", result.faults().first());
///     println!("{}: {:.0}/s, p99 {:?}", result.title(), result.rate(), result.latencies().quantile(0.99));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Load {
    endpoint: Endpoint,
    shape: Shape,
    limit: Limit,
    pace: Pace,
    verify: Verify,
    keys: Option<NonZeroU64>,
    seed: u64,
    len: u64,
}

/// Why a load was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The name of a test is not known, or the words do not make a command: which, in one line.
    #[error("{0}")]
    Refused(String),
    /// The connections could not be opened.
    #[error("the connections could not be opened")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<FleetError> for LoadError {
    fn from(error: FleetError) -> LoadError {
        LoadError::Connect(error.into())
    }
}

impl Load {
    /// 100 000 requests on one connection, one at a time, each as soon as the reply before has come. Values have 3 bytes, there is one key, and
    /// every byte of each reply is compared.
    #[must_use]
    pub fn new(server: Endpoint) -> Load {
        let shape = Shape {
            connections: 1,
            tasks_per_connection: None,
            library: None,
            pipeline: 1,
            threads: 1,
            runtime_threads: 1,
            sizes: String::new(),
            keyspace: None,
            key_order: None,
            seed: None,
        };
        Load {
            endpoint: server,
            shape,
            limit: Limit::Requests(100_000),
            pace: Pace::Closed,
            verify: Verify::Full,
            keys: None,
            seed: 0,
            len: 3,
        }
    }

    /// The number of connections, at least 1. Without [`tasks_per_connection`](Self::tasks_per_connection), each is driven directly, without the
    /// client library.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Load {
        self.shape.connections = connections.max(1);
        self
    }

    /// The number of tasks that share each connection through the client library, at least 1.
    #[must_use]
    pub fn tasks_per_connection(mut self, tasks: usize) -> Load {
        self.shape.tasks_per_connection = Some(tasks.max(1));
        self
    }

    /// The number of requests that each task or connection sends before it awaits the first reply, at least 1.
    #[must_use]
    pub fn pipeline(mut self, requests: usize) -> Load {
        self.shape.pipeline = requests.max(1);
        self
    }

    /// When each test ends. Requests count over all connections; a sequence of commands is one.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> Load {
        self.limit = limit;
        self
    }

    /// Commands per second, above 0, over all connections: each is due at its time, even if the server falls behind. Latencies then begin when a
    /// command was due.
    #[must_use]
    pub fn rate(mut self, rate: f64) -> Load {
        self.pace = Pace::Open { rate, arrivals: Arrivals::Constant };
        self
    }

    /// How much of each reply is checked.
    #[must_use]
    pub fn verify(mut self, verify: Verify) -> Load {
        self.verify = verify;
        self
    }

    /// The number of keys, drawn at random with `seed`; the same seed gives the same keys. At least 1.
    #[must_use]
    pub fn keys(mut self, keys: u64, seed: u64) -> Load {
        (self.keys, self.seed) = (NonZeroU64::new(keys.max(1)), seed);
        self
    }

    /// The length of values in bytes, 1 to 536 870 912.
    #[must_use]
    pub fn value_len(mut self, len: u64) -> Load {
        self.len = len.clamp(1, Sizes::MAX);
        self
    }

    /// Runs tests one after the other: `list` has their names, as `-t` of the program (`set,get`). They run in the program's order.
    ///
    /// A test that could not be prepared has a result with the fault.
    ///
    /// # Errors
    /// [`LoadError`] if a name is not known, or a connection cannot be opened.
    ///
    /// # Cancel safety
    /// Dropping the future ends the load and closes the connections. The drop waits for that, and over RDMA for connects that are pending. What was
    /// sent may still take effect.
    pub async fn tests(&self, list: &str) -> Result<Vec<TestResult>, LoadError> {
        let tests = tests_from_list(list).map_err(|error| LoadError::Refused(error.to_string()))?;
        let options = TestOptions::default();
        self.run(tests.iter().map(|test| test.script(&self.keys_drawn(), &options)).collect()).await
    }

    /// Runs one command over and over: `words` may have the placeholders of the program (`__rand_int__`, `__data__`), and several commands
    /// separated by `;`.
    ///
    /// # Errors
    /// [`LoadError`] if the words do not make a command, or a connection cannot be opened.
    ///
    /// # Cancel safety
    /// As [`tests`](Self::tests).
    pub async fn command(&self, words: &[&str]) -> Result<Vec<TestResult>, LoadError> {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let script = Script::from_words(&words, self.keys.is_some());
        self.run(vec![script.map_err(|error| LoadError::Refused(error.to_string()))?]).await
    }

    async fn run(&self, scripts: Vec<Script>) -> Result<Vec<TestResult>, LoadError> {
        let (ask, interrupt) = Interrupt::by_hand();
        let measured = pin!(self.measured(scripts, &interrupt));
        // Dropped before what it interrupts: threads at work would keep a caller that drops this future until the load is over.
        let _interrupts = ask.drop_guard();
        measured.await
    }

    async fn measured(
        &self,
        scripts: Vec<Script>,
        interrupt: &Interrupt,
    ) -> Result<Vec<TestResult>, LoadError> {
        let (keys, sizes) = (self.keys_drawn(), Sizes::fixed(self.len));
        let shape = Shape {
            sizes: sizes.to_string(),
            keyspace: self.keys,
            key_order: keys.order_text(),
            seed: keys.random_seed(),
            ..self.shape.clone()
        };
        let plan = Plan {
            pace: self.pace,
            verify: self.verify,
            values: Values::new(sizes.clone(), keys.count(), false),
            keys,
            ..Plan::of(shape, scripts, sizes, self.limit)
        };
        let scripts = plan.scripts.clone();
        let target = Target::new(self.endpoint.clone());
        let mut results = Vec::new();
        // Without an interrupt, there is a session.
        if let Some(mut session) = Session::open(target, plan, interrupt, &mut |_| {}).await? {
            for script in &scripts {
                results.push(session.test(script, Progress::Hidden, &mut |_| {}).await);
            }
        }
        Ok(results)
    }

    fn keys_drawn(&self) -> Keys {
        match self.keys {
            None => Keys::SINGLE,
            some => Keys::random(some, self.seed, Distribution::Uniform),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use tokio::runtime::Runtime;
    use valkey_rdma_mock::{Mock, Server};

    use super::*;

    #[test]
    fn a_load_ends_when_its_future_is_dropped() {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (servers, mock) = (Runtime::new().unwrap(), Mock::new());
        let sets = mock.on("SET");
        let server = servers.block_on(Server::builder(mock).tcp(loopback).start()).unwrap();
        let endless =
            Load::new(server.urls().next().unwrap().parse().unwrap()).limit(Limit::Requests(u64::MAX));
        let (returned, returns) = mpsc::channel();
        thread::spawn(move || {
            Runtime::new().unwrap().block_on(async {
                let begun = async {
                    while sets.matched() == 0 {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::select! {
                    ended = endless.tests("set") => panic!("it ended: {ended:?}"),
                    () = begun => {}
                }
            });
            returned.send(()).unwrap();
        });
        returns.recv_timeout(Duration::from_secs(60)).expect("the drop returns");
    }

    #[tokio::test]
    async fn a_program_gets_checked_figures() {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let server = Server::builder(Mock::new()).tcp(loopback).start().await.unwrap();
        let load = Load::new(server.urls().next().unwrap().parse().unwrap());
        let load = load.connections(2).keys(50, 7).value_len(100).limit(Limit::Requests(300));

        let results = load.clone().tasks_per_connection(3).tests("get,set").await.unwrap();
        let titles: Vec<_> = results.iter().map(TestResult::title).collect();
        assert_eq!(titles, ["SET", "GET"]);
        for result in &results {
            assert!(result.is_right(), "{:?}", result.faults().first());
            assert_eq!((result.replies(), result.latencies().count()), (300, 300));
            assert!(result.rate() > 0.0 && result.outages().is_empty());
        }

        let wrong = load.command(&["nothing", "__data__"]).await.unwrap();
        assert_eq!(wrong[0].faults().total(), 300);
        assert!(matches!(load.tests("nothing").await, Err(LoadError::Refused(_))));
    }
}
