//! Tests on the connections to one server: prepares what a test needs, then measures it.

use std::sync::Arc;
use std::time::Duration;

use valkey_rdma_client::{Client, Command};

use super::server_info::ServerInfo;
use super::{Plan, Progress};
use crate::drive::{Fleet, FleetError, Job, Limit, Pace, Target, dial_client};
use crate::measure::{Environment, Fault, FaultKind, Faults, RunInfo, TestResult};
use crate::workload::{Populate, Script};
use valkey_rdma_program::{Interrupt, error_chain};
use valkey_rdma_transport::tls::Verify;

/// The connections to one server, and the plan of the tests on them.
#[derive(Debug)]
pub(crate) struct Session {
    fleet: Fleet,
    plan: Plan,
    interrupt: Interrupt,
    /// The script that ran last and how many of its requests, if every reply was right.
    last: Option<(Arc<Script>, u64)>,
    /// Asks the server for its CPU time before and after each test.
    asks: Option<Client>,
}

impl Session {
    /// Opens the connections of `plan`. `None`: the user interrupted.
    pub(crate) async fn open(
        target: Target,
        plan: Plan,
        interrupt: &Interrupt,
        say: &mut dyn FnMut(&str),
    ) -> Result<Option<Session>, FleetError> {
        let Some(fleet) = Fleet::open(target, &plan.shape, interrupt, say).await? else { return Ok(None) };
        let mut plan = plan;
        plan.shape.threads = fleet.threads();
        Ok(Some(Session { fleet, plan, interrupt: interrupt.clone(), last: None, asks: None }))
    }

    /// Asks the server for its CPU time before and after each test, over this connection.
    pub(crate) fn ask_over(&mut self, client: Client) {
        self.asks = Some(client);
    }

    /// As [`ask_over`](Self::ask_over) a connection of its own. Nothing is asked if there is none.
    pub(crate) async fn ask(&mut self) {
        self.asks = dial_client(self.fleet.target()).await.ok();
    }

    /// Sends the requests of all further tests at this pace.
    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.plan.pace = pace;
    }

    /// The plan of the tests.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What stays the same for all tests.
    pub(crate) async fn info(&self) -> RunInfo {
        let (target, opened) = (self.fleet.target(), self.fleet.opened());
        let link = &opened.link;
        let mut text = target.endpoint.protocol().to_string().to_uppercase();
        let tls = link.tls.as_ref().map(ToString::to_string);
        if let Some(tls) = &tls {
            text.push_str(&format!(", {tls}"));
        }
        if target.endpoint.tls().is_some_and(|tls| tls.verify() == Verify::None) {
            text.push_str(" (server not verified)");
        }
        if let Some(device) = &link.device {
            text.push_str(&format!(", device {device}"));
        }
        if let Some(mtu) = link.mtu {
            text.push_str(&format!(", active MTU {mtu} bytes"));
        }
        if let (Some(ours), Some(theirs)) = (link.rx_window, link.tx_window) {
            text.push_str(&format!(", windows {ours} bytes ours, {theirs} bytes theirs"));
        }
        if target.transport().starts_with("emulated") {
            text.push_str(" (software, not RDMA)");
        }
        if let Some(library) = &self.plan.shape.library {
            text.push_str(&format!(", through {}", library.name()));
        }
        let server = match &self.asks {
            Some(client) => ServerInfo::ask(client, "server").await.and_then(|info| info.version()),
            None => server_version(target).await,
        };
        RunInfo {
            target: target.to_string(),
            transport: target.transport(),
            link: text,
            tls,
            shape: self.plan.shape.clone(),
            pace: self.plan.pace,
            connect_time: opened.time,
            verify: self.plan.verify,
            environment: Environment::look(link, server, &target.endpoint.polling().to_string()),
        }
    }

    /// Prepares and runs a test as planned.
    pub(crate) async fn test(
        &mut self,
        script: &Arc<Script>,
        progress: Progress,
        say: &mut dyn FnMut(&str),
    ) -> TestResult {
        let numbers = match self.prepare(script, progress, say).await {
            Ok(numbers) => numbers,
            Err(failed) => return *failed,
        };
        let job = Job { numbers, ..self.plan.job(script, self.plan.limit, self.plan.pace) };
        let result = self.watched(job, &script.title, progress).await;
        self.remember(script, &result);
        result
    }

    /// Keeps in mind which keys a test has written.
    fn remember(&mut self, script: &Arc<Script>, result: &TestResult) {
        let requests = result.replies() / script.commands_per_request().max(1) as u64;
        let before = match &self.last {
            Some((last, before)) if Arc::ptr_eq(last, script) => *before,
            _ => 0,
        };
        let requests = if result.is_right() { requests.max(before) } else { before };
        self.last = (requests > 0).then(|| (Arc::clone(script), requests));
    }

    /// Writes or looks up the keys that a test reads, loads the functions it calls, and warms up. Returns how many
    /// requests have their keys, if that is limited: requests are then numbered below it, over and over.
    pub(crate) async fn prepare(
        &mut self,
        script: &Arc<Script>,
        progress: Progress,
        say: &mut dyn FnMut(&str),
    ) -> Result<Option<u64>, Box<TestResult>> {
        let written = self.last.take().and_then(|(last, requests)| {
            script.writer.as_ref().is_some_and(|writer| last.is_of(writer)).then_some(requests)
        });
        if let Some(population) = self.plan.population(script).filter(|_| written.is_none()) {
            let title = if self.plan.populate == Populate::None { "looking up keys" } else { "writing keys" };
            if let Some(notice) = &population.notice {
                say(notice);
            }
            let populated = self.watched(population.job, title, progress).await;
            if !populated.is_right() || self.interrupt.is_asked() {
                return Err(Box::new(unread(&script.title, populated, self.plan.populate)));
            }
        }
        if let Some(library) = script.library() {
            self.load(library).await.map_err(|fault| {
                let mut result = TestResult::empty(&script.title);
                result.tally.faults.add(fault);
                Box::new(result)
            })?;
        }
        if let Some(warmup) = self.plan.warmup {
            let warm =
                self.watched(self.plan.warming_up(script, warmup, written), "warming up", progress).await;
            if !warm.is_right_or_late() {
                return Err(Box::new(warm));
            }
        }
        // With a number of requests, both tests send the same ones.
        Ok(written.filter(|_| matches!(self.plan.limit, Limit::Time(_))))
    }

    /// Runs a test, its requests numbered below `numbers` if [`prepare`](Self::prepare) says so.
    pub(crate) async fn measure(
        &mut self,
        script: &Arc<Script>,
        (limit, numbers): (Limit, Option<u64>),
        pace: Pace,
        progress: Progress,
    ) -> TestResult {
        let job = Job { numbers, ..self.plan.job(script, limit, pace) };
        let before = self.server_cpu().await;
        let mut result = self.watched(job, &script.title, progress).await;
        let used = before.zip(self.server_cpu().await);
        result.server_cpu = used.map(|(before, after)| after.saturating_sub(before));
        self.remember(script, &result);
        result
    }

    /// The CPU time that the server has used, if it is asked and says so.
    async fn server_cpu(&self) -> Option<Duration> {
        ServerInfo::ask(self.asks.as_ref()?, "cpu").await?.cpu()
    }

    async fn watched(&self, job: Job, title: &str, progress: Progress) -> TestResult {
        let running = self.fleet.start(job);
        let line = progress.start(title, running.watch());
        let result = running.finish().await;
        drop(line);
        result
    }

    async fn load(&self, library: &str) -> Result<(), Fault> {
        let failed = |what: String| Fault {
            kind: FaultKind::NotPopulated,
            detail: format!("FUNCTION LOAD, which this test needs: {what}"),
        };
        let client = dial_client(self.fleet.target()).await.map_err(|error| failed(error_chain(&error)))?;
        let load = Command::new("FUNCTION").arg("LOAD").arg("REPLACE").arg(library);
        let loading = client.command(load);
        match self.plan.reply_timeout {
            None => loading.await,
            Some(limit) => tokio::time::timeout(limit, loading)
                .await
                .map_err(|_| failed(format!("no reply within {limit:?} (--reply-timeout)")))?,
        }
        .map(drop)
        .map_err(|error| failed(error_chain(&error)))
    }
}

/// Name and version of the server, if it says so.
async fn server_version(target: &Target) -> Option<String> {
    let dialed = tokio::time::timeout(ServerInfo::PATIENCE, dial_client(target)).await.ok()?.ok()?;
    ServerInfo::ask(&dialed, "server").await?.version()
}

/// The result of a test that was not run, because its keys could not be written or are not there.
fn unread(title: &str, populated: TestResult, populate: Populate) -> TestResult {
    let mut result = TestResult::empty(title);
    result.gave_up = populated.gave_up;
    let faults = &mut result.tally.faults;
    if populate != Populate::None && !populated.is_right() {
        let detail = "the keys to read could not be written, so nothing was read".to_owned();
        faults.add(Fault { kind: FaultKind::NotPopulated, detail });
    }
    faults.merge(populated.tally.faults);
    if populate == Populate::None
        && let Some(advice) = advice_on_keys(faults)
    {
        faults.advise(advice);
    }
    result
}

/// What to do about keys that a test reads, by the faults of looking some of them up.
fn advice_on_keys(faults: &Faults) -> Option<&'static str> {
    let holds_other = |kind: &FaultKind| match kind {
        FaultKind::WrongBytes | FaultKind::WrongLength | FaultKind::WrongReply => true,
        FaultKind::ServerError(code) => code == "WRONGTYPE",
        _ => false,
    };
    if faults.counts().any(|(kind, _)| holds_other(kind)) {
        Some(
            "the keys to read hold other values: write them with --populate all, or run the test that writes them first \
             (-t set,get)",
        )
    } else if faults.counts().any(|(kind, _)| *kind == FaultKind::Missing) {
        Some(
            "the keys to read do not exist: write them with --populate missing or all, or run the test that writes them \
             first (-t set,get)",
        )
    } else {
        None
    }
}
