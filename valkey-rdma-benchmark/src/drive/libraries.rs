//! The [client libraries](Libraries) that a program has, each [opened](Choice) without its types.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use valkey_rdma_client::Endpoint;

use super::dial::{DialError, Target};
use super::job::Verify;
use super::library::{Library, Source};
use super::open::{Opening, open_all};
use super::ours::Ours;
use super::shared::{Group, Slot};
use super::transfers::Transfers;

/// The libraries that a program of the load tool can choose from with `--library`, beside this project's own.
#[derive(Debug, Clone, Default)]
pub struct Libraries {
    all: Vec<Choice>,
}

impl Libraries {
    /// These and `library`.
    #[must_use]
    pub fn with(mut self, library: impl Library) -> Libraries {
        self.all.push(Choice(Arc::new(library)));
        self
    }

    /// The library of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Choice> {
        self.all.iter().find(|library| library.name() == name)
    }

    /// All their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.all.iter().map(Choice::name)
    }
}

/// The library that drives shared connections.
#[derive(Clone)]
pub(crate) struct Choice(Arc<dyn Opener>);

impl Choice {
    /// This project's own.
    pub(crate) fn ours() -> Choice {
        Choice(Arc::new(Ours))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.0.called()
    }

    /// This project's own, with direct transfers of values of at most `longest` bytes.
    pub(crate) fn direct(longest: usize, verify: Verify) -> Choice {
        Choice(Arc::new(Transfers { longest, verify }))
    }

    /// Which way values go: `direct` or `stream`.
    pub(crate) fn way(&self) -> &'static str {
        self.0.way()
    }

    /// Why it cannot be used with this server.
    pub(crate) fn refuses(&self, endpoint: &Endpoint) -> Option<String> {
        self.0.refuses(endpoint)
    }

    /// Opens `count` connections. `None`: the user interrupted, or another thread failed.
    pub(super) async fn open(
        &self,
        target: &Arc<Target>,
        count: usize,
        opening: &Opening,
    ) -> Result<Option<Box<dyn Group>>, DialError> {
        Arc::clone(&self.0).open(target, count, opening).await
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl PartialEq for Choice {
    fn eq(&self, other: &Choice) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Choice {}

type Opened<'a> = Pin<Box<dyn Future<Output = Result<Option<Box<dyn Group>>, DialError>> + 'a>>;

/// A [`Source`] without its types. They come back with each group of connections, so that a request costs no indirect call.
trait Opener: Send + Sync {
    fn called(&self) -> &'static str;

    fn way(&self) -> &'static str;

    fn refuses(&self, endpoint: &Endpoint) -> Option<String>;

    fn open<'a>(self: Arc<Self>, target: &'a Arc<Target>, count: usize, opening: &'a Opening) -> Opened<'a>;
}

impl<S: Source> Opener for S {
    fn called(&self) -> &'static str {
        Source::called(self)
    }

    fn way(&self) -> &'static str {
        Source::way(self)
    }

    fn refuses(&self, endpoint: &Endpoint) -> Option<String> {
        Source::refuses(self, endpoint)
    }

    fn open<'a>(self: Arc<Self>, target: &'a Arc<Target>, count: usize, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async move {
            let opened = open_all(count, opening, || {
                let (source, target) = (Arc::clone(&self), Arc::clone(target));
                async move { source.dial(&target).await }
            });
            Ok(opened.await?.map(|connections| {
                let slots = connections.into_iter().map(|open| Arc::new(Slot::new(Arc::clone(&self), open)));
                Box::new(slots.collect::<Vec<_>>()) as Box<dyn Group>
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use valkey_rdma_client::{Endpoint, Transport, Value};
    use valkey_rdma_program::Interrupt;

    use super::*;
    use crate::drive::{Connection, Failure, Fleet, Limit, Pace};
    use crate::measure::{FaultKind, Shape};
    use crate::run::Plan;
    use crate::workload::{Expect, Script, Sizes, Step, Template, Values};

    /// Answers each call out of what it has, and opens a connection for each call that is lost.
    struct Scripted {
        outcomes: Arc<Mutex<Vec<Result<Value, Failure>>>>,
        connected: Arc<AtomicUsize>,
    }

    #[derive(Clone)]
    struct Answers {
        outcomes: Arc<Mutex<Vec<Result<Value, Failure>>>>,
        closed: Arc<AtomicBool>,
    }

    impl Library for Scripted {
        type Connection = Answers;

        fn name(&self) -> &'static str {
            "scripted"
        }

        async fn connect(&self, _: &Endpoint) -> Result<Answers, String> {
            self.connected.fetch_add(1, Ordering::Relaxed);
            Ok(Answers { outcomes: Arc::clone(&self.outcomes), closed: Arc::default() })
        }
    }

    impl Connection for Answers {
        type Command = Vec<Vec<u8>>;

        fn command(name: &[u8]) -> Vec<Vec<u8>> {
            vec![name.to_vec()]
        }

        fn push(command: &mut Vec<Vec<u8>>, argument: &[u8]) {
            command.push(argument.to_vec());
        }

        async fn call(&mut self, command: Vec<Vec<u8>>) -> Result<Value, Failure> {
            assert_eq!(command, [b"GET".to_vec(), b"k".to_vec()]);
            let outcome = self.outcomes.lock().unwrap().pop().expect("one for each request");
            self.closed.store(matches!(outcome, Err(Failure::Lost(_))), Ordering::Relaxed);
            outcome
        }

        async fn call_all(
            &mut self,
            commands: impl Iterator<Item = Vec<Vec<u8>>> + Send,
            mut each: impl FnMut(Result<Value, Failure>) + Send,
        ) -> Result<(), Failure> {
            for command in commands {
                each(Ok(self.call(command).await?));
            }
            Ok(())
        }

        fn is_closed(&self) -> bool {
            self.closed.load(Ordering::Relaxed)
        }
    }

    /// Runs as many GETs of a value of 3 bytes as there are outcomes. Returns the counts of faults, replies, and connections opened.
    async fn run(
        pipeline: usize,
        outcomes: &[Result<Value, Failure>],
    ) -> (Vec<(FaultKind, u64)>, u64, usize) {
        let (connected, requests) = (Arc::new(AtomicUsize::new(0)), outcomes.len() as u64);
        let outcomes = Arc::new(Mutex::new(outcomes.iter().rev().cloned().collect()));
        let library = Scripted { outcomes, connected: Arc::clone(&connected) };
        let libraries = Libraries::default().with(library);
        let shape = Shape {
            connections: 1,
            tasks_per_connection: Some(1),
            library: libraries.named("scripted").cloned(),
            pipeline,
            threads: 1,
            runtime_threads: 1,
            sizes: "3".to_owned(),
            keyspace: None,
            key_order: None,
            seed: None,
        };
        let step = Step::new(Template::new(&["GET", "k"], false), Expect::Value);
        let script = Script::single("GET", step, None);
        let plan = Plan::of(shape.clone(), vec![script], Sizes::fixed(3), Limit::Requests(requests));
        let target = Target::new(Endpoint::new(Transport::Tcp, "nowhere", 1));
        let fleet = Fleet::open(target, &shape, &Interrupt::never(), &mut |_| {}).await.unwrap().unwrap();
        let running = fleet.start(plan.job(&plan.scripts[0], plan.limit, Pace::Closed));
        let result = tokio::time::timeout(Duration::from_secs(60), running.finish()).await.unwrap();
        let faults = result.tally.faults.counts().map(|(kind, count)| (kind.clone(), count)).collect();
        (faults, result.replies(), connected.load(Ordering::Relaxed))
    }

    fn right() -> Result<Value, Failure> {
        let values = Values::new(Sizes::fixed(3), 1, false);
        Ok(Value::Bulk(Bytes::copy_from_slice(values.of(0))))
    }

    #[tokio::test]
    async fn replies_through_another_library_are_checked_like_ours() {
        let short = Ok(Value::Bulk("V".into()));
        for pipeline in [1, 3] {
            let (faults, replies, _) = run(pipeline, &[right(), short.clone(), Ok(Value::Nil)]).await;
            assert_eq!(faults, [(FaultKind::WrongLength, 1), (FaultKind::Missing, 1)], "-P {pipeline}");
            assert_eq!(replies, 3);
        }
    }

    #[tokio::test]
    async fn a_lost_connection_of_another_library_is_counted_and_opened_anew() {
        let lost = Err(Failure::Lost("reset".to_owned()));
        let (faults, replies, connected) = run(1, &[right(), lost.clone(), right()]).await;
        assert_eq!((faults, replies, connected), (vec![(FaultKind::ConnectionLost, 1)], 2, 2));
        let (faults, replies, _) = run(3, &[right(), lost, right()]).await;
        assert_eq!(
            (faults, replies),
            (vec![(FaultKind::ConnectionLost, 2)], 1),
            "-P 3: the third is not sent"
        );
    }

    #[tokio::test]
    async fn a_command_that_the_library_refuses_keeps_the_connection() {
        let refused = Err(Failure::Refused("not shared".to_owned()));
        let (faults, replies, connected) = run(1, &[refused, right()]).await;
        assert_eq!((faults, replies, connected), (vec![(FaultKind::Refused, 1)], 1, 1));
    }
}
