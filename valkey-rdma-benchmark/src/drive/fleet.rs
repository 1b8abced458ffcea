//! All connections to one target, on their threads.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use valkey_rdma_program::Interrupt;

use super::connections::Drive;
use super::dial::{DialError, Target};
use super::job::{Job, Run};
use super::libraries::Choice;
use super::link_info::LinkInfo;
use super::open::Opening;
use super::running::Running;
use super::share::Share;
use super::thread::{self as load_thread, Order, Plan};
use crate::measure::Shape;

/// All connections to one target.
#[derive(Debug)]
pub(crate) struct Fleet {
    target: Arc<Target>,
    threads: Vec<LoadThread>,
    connections: usize,
    opened: Opened,
    interrupt: Interrupt,
}

/// How the connections were opened, and what they run on.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    /// Until the last one was open.
    pub(crate) time: Duration,
    /// What they run on.
    pub(crate) link: LinkInfo,
}

/// Why the connections could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FleetError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("no threads could be started; raise the limits of threads and open files, or use fewer threads")]
    Thread(#[from] io::Error),
}

#[derive(Debug)]
struct LoadThread {
    /// As its connections go there.
    target: Arc<Target>,
    /// Dropped to ask the thread to end.
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for LoadThread {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, has been printed.
            let _ = thread.join();
        }
    }
}

impl Fleet {
    /// Opens all connections of `shape` to `target`; `say` receives notices for the user. `None`: the user interrupted.
    ///
    /// After a failure or an interrupt the process may end: no connect is pending then that a server needs to survive.
    pub(crate) async fn open(
        target: Target,
        shape: &Shape,
        interrupt: &Interrupt,
        say: &mut dyn FnMut(&str),
    ) -> Result<Option<Fleet>, FleetError> {
        let count = shape.threads.min(shape.connections).max(1);
        let target = Arc::new(target);
        let opening = Arc::new(Opening::new(!target.is_device(), interrupt.clone()));
        let (notices, mut noticed) = mpsc::unbounded_channel();
        let begin = Instant::now();
        let (mut threads, mut ready) = (Vec::new(), Vec::new());
        for number in 0..count {
            let connections = shape.connections / count + usize::from(number < shape.connections % count);
            let drive = match (&shape.library, shape.tasks_per_connection) {
                (None, None) => Drive::Direct,
                (library, tasks) => {
                    Drive::Shared(library.clone().unwrap_or_else(Choice::ours), tasks.unwrap_or(1))
                }
            };
            let several = drive == Drive::Direct && connections > 1;
            let target = if several { Arc::new(target.for_one_thread()) } else { Arc::clone(&target) };
            let plan = Plan {
                target: Arc::clone(&target),
                drive,
                runtime_threads: shape.runtime_threads,
                connections,
                opening: Arc::clone(&opening),
                interrupt: interrupt.clone(),
                notices: notices.clone(),
            };
            let (orders, taken) = mpsc::unbounded_channel();
            let (report, opened) = oneshot::channel();
            let main = move || load_thread::main(plan, report, taken);
            let thread = thread::Builder::new().name(format!("load-{number}")).spawn(main)?;
            threads.push(LoadThread { target, orders: Some(orders), thread: Some(thread) });
            ready.push(opened);
        }
        drop(notices);

        let all = async {
            let (mut link, mut failure, mut whole) = (None, None, true);
            for opened in ready {
                match opened.await.map_err(|_| io::Error::other("a thread ended"))?? {
                    Ok(Some(opened)) => drop(link.get_or_insert(opened)),
                    Ok(None) => whole = false,
                    Err(error) => drop(failure.get_or_insert(error)),
                }
            }
            match (failure, link) {
                (Some(error), _) => Err(FleetError::from(error)),
                (None, Some(link)) if whole => Ok(Some(link)),
                (None, _) => Ok(None),
            }
        };
        tokio::pin!(all);
        let mut asked = false;
        let opened = loop {
            tokio::select! {
                biased;
                opened = &mut all => break opened?,
                Some(notice) = noticed.recv() => say(&notice),
                () = interrupt.asked(), if !asked => {
                    asked = true;
                    if target.is_device() {
                        say("interrupted: waiting for pending connects to complete; Ctrl-C again ends at once");
                    }
                }
            }
        };
        let Some(link) = opened.filter(|_| !interrupt.is_asked()) else { return Ok(None) };
        let opened = Opened { time: begin.elapsed(), link };
        let interrupt = interrupt.clone();
        Ok(Some(Fleet { target, threads, connections: shape.connections, opened, interrupt }))
    }

    /// The server.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// How many threads drive the connections: never more than there are connections.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// How the connections were opened.
    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Begins a job on all connections.
    pub(crate) fn start(&self, job: Job) -> Running {
        let run = Arc::new(Run::new(job, self.connections));
        let threads = self.threads.len();
        let (mut shares, mut parts) = (Vec::new(), Vec::new());
        for (number, thread) in self.threads.iter().enumerate() {
            let share = Arc::new(Share::new(Arc::clone(&thread.target), &run, number, threads));
            let (done, part) = oneshot::channel();
            let order = Order { run: Arc::clone(&run), share: Arc::clone(&share), done };
            if let Some(orders) = &thread.orders {
                // A thread that is gone has panicked; its part is missing below.
                let _ = orders.send(order);
            }
            shares.push(share);
            parts.push(part);
        }
        Running::new(run, shares, parts, self.interrupt.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::runtime::Runtime;
    use valkey_rdma_client::{Endpoint, Transport};
    use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};

    use super::*;
    use crate::drive::{Arrivals, Limit, Pace};
    use crate::measure::Counter;
    use crate::run::Plan;
    use crate::workload::{Script, Sizes};

    #[test]
    fn every_request_that_was_due_is_sent_or_counted() {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let servers = Runtime::new().unwrap();
        let server = servers.block_on(Server::builder(Mock::new()).tcp(loopback).start()).unwrap();
        let addr = server.listening()[0].addr;
        let target = Target::new(Endpoint::new(Transport::Tcp, addr.ip().to_string(), addr.port()));
        let (shape, plan) = pings(None);
        let interrupt = Interrupt::never();
        Runtime::new().unwrap().block_on(async {
            let fleet = Fleet::open(target, &shape, &interrupt, &mut |_| {}).await.unwrap().unwrap();
            // More than one connection can do, at times that binary fractions represent exactly.
            let pace = Pace::Open { rate: (1 << 20) as f64, arrivals: Arrivals::Constant };
            let limit = Limit::Time(Duration::from_micros(31_250));
            let result = fleet.start(plan.job(&plan.scripts[0], limit, pace)).finish().await;
            assert_eq!(result.replies() + result.tally.faults.total(), 1 << 15);
        });
    }

    #[test]
    fn counters_survive_an_interrupt() {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let servers = Runtime::new().unwrap();
        let config = TransportConfig::default();
        let server = Server::builder(Mock::new()).rdma(DeviceKind::Emulated, loopback, &config);
        let server = servers.block_on(server.start()).unwrap();
        let addr = server.listening()[0].addr;
        let target = Target::new(Endpoint::new(Transport::Emulated, addr.ip().to_string(), addr.port()));
        for tasks_per_connection in [None, Some(2)] {
            let (shape, plan) = pings(tasks_per_connection);
            let (ask, interrupt) = Interrupt::by_hand();
            Runtime::new().unwrap().block_on(async {
                let opened = Fleet::open(target.clone(), &shape, &interrupt, &mut |_| {}).await;
                let fleet = opened.unwrap().unwrap();
                let endless = Limit::Requests(u64::MAX);
                let running = fleet.start(plan.job(&plan.scripts[0], endless, Pace::Closed));
                while running.watch().done() < 100 {
                    tokio::task::yield_now().await;
                }
                ask.cancel();
                let result = running.finish().await;
                let bytes = result.per_request().unwrap().of(Counter::BytesOut);
                assert!(bytes > 10.0, "{tasks_per_connection:?}: {bytes} bytes out per PING");
            });
        }
    }

    fn pings(tasks_per_connection: Option<usize>) -> (Shape, Plan) {
        let shape = Shape {
            connections: 1,
            tasks_per_connection,
            library: None,
            pipeline: 1,
            threads: 1,
            runtime_threads: 1,
            sizes: "3".to_owned(),
            keyspace: None,
            key_order: None,
            seed: None,
        };
        let script = Script::from_words(&[b"PING".to_vec()], false).unwrap();
        let plan = Plan::of(shape.clone(), vec![script], Sizes::fixed(3), Limit::Requests(1_000_000));
        (shape, plan)
    }

    #[tokio::test(start_paused = true)]
    async fn a_timed_job_waits_for_replies_as_long_as_its_connections_do() {
        let (_, plan) = pings(None);
        let run = |reply_timeout| {
            let job = plan.job(&plan.scripts[0], Limit::Time(Duration::from_secs(1)), Pace::Closed);
            Run::new(Job { reply_timeout, ..job }, 1)
        };
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        let endless = run(None);
        assert_eq!(run(Some(hour)).last_wait(), Some(hour));
        assert_eq!(run(Some(second)).last_wait(), Some(endless.job.patience), "as for a lost server");
        assert!(tokio::time::timeout(24 * hour, endless.no_more_replies()).await.is_err());
    }

    /// Each reply comes in time, and all together would take longer than the test is waited for.
    #[test]
    fn replies_that_a_timed_job_lacks_at_its_end_are_faults_of_their_kind() {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (servers, mock) = (Runtime::new().unwrap(), Mock::new());
        mock.on("PING").delay(Duration::from_millis(100));
        let server = servers.block_on(Server::builder(mock).tcp(loopback).start()).unwrap();
        let addr = server.listening()[0].addr;
        let target = Target::new(Endpoint::new(Transport::Tcp, addr.ip().to_string(), addr.port()));
        let (shape, plan) = pings(None);
        let interrupt = Interrupt::never();
        Runtime::new().unwrap().block_on(async {
            let fleet = Fleet::open(target, &shape, &interrupt, &mut |_| {}).await.unwrap().unwrap();
            let job = plan.job(&plan.scripts[0], Limit::Time(Duration::from_secs(1)), Pace::Closed);
            let (patience, reply_timeout) = (Duration::from_millis(1), Some(Duration::from_millis(500)));
            let running = fleet.start(Job { pipeline: 1000, patience, reply_timeout, ..job });
            let result = running.finish().await;
            let kinds: Vec<_> = result.tally.faults.counts().map(|(kind, _)| kind.to_string()).collect();
            assert_eq!((kinds, result.gave_up), (vec!["no reply".to_owned()], true));
        });
    }

    #[test]
    fn tasks_of_one_connection_give_a_lost_server_up_together() {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let servers = Runtime::new().unwrap();
        let server = servers.block_on(Server::builder(Mock::new()).tcp(loopback).start()).unwrap();
        let addr = server.listening()[0].addr;
        let target = Target::new(Endpoint::new(Transport::Tcp, addr.ip().to_string(), addr.port()));
        let (shape, plan) = pings(Some(8));
        let interrupt = Interrupt::never();
        Runtime::new().unwrap().block_on(async {
            let fleet = Fleet::open(target, &shape, &interrupt, &mut |_| {}).await.unwrap().unwrap();
            drop(server);
            servers.shutdown_background();
            let job = plan.job(&plan.scripts[0], plan.limit, Pace::Closed);
            let result = fleet.start(Job { patience: Duration::from_millis(1), ..job }).finish().await;
            assert!(result.gave_up && !result.is_right());
            assert_eq!((result.lost, result.outages.len()), (1, 1), "{:?}", result.outages);
        });
    }
}
