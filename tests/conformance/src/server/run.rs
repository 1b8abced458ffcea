//! Runs cases against a server, one after the other, and checks after each that other connections are unharmed.

use std::path::PathBuf;
use std::time::Duration;

use redis_protocol::resp2::types::OwnedFrame;
use tokio::time::{Instant, timeout};

use super::{Context, Spawned, Target};
use crate::peer::{Finding, Peer, Transcript, request};
use crate::{Case, Record, Verdict};

/// Which server is tested, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server.
    pub target: Target,
    /// How long the suite waits for anything that must come.
    pub patience: Duration,
    /// Whether to run the cases that published servers die of.
    pub hostile: bool,
    /// A shell command that starts the server. It is started again after a case has killed it.
    pub spawn: Option<String>,
    /// The file to which the output of that command is appended.
    pub log: Option<PathBuf>,
}

/// Runs `cases`, which should be among those of [`Target::cases`], and passes each record to `report` as soon as it exists.
///
/// After each case the server must still serve a client that was connected before it, and a new one. The rest is not run once
/// the server cannot be started again, or does not serve the client that connects before a case.
///
/// # Errors
/// A text for people, if no case was run because the server cannot be started, or accepts no connection.
pub async fn run(
    cases: impl IntoIterator<Item = &'static Case<Context>>,
    options: &Options,
    mut report: impl FnMut(&Record),
) -> Result<Vec<Record>, String> {
    let mut runner = Runner::new(options);
    runner.reach().await?;
    let mut records = Vec::new();
    for case in cases {
        let record = runner.run(case).await;
        report(&record);
        records.push(record);
    }
    if let Some(server) = runner.server {
        server.stop().await;
    }
    Ok(records)
}

struct Runner<'a> {
    options: &'a Options,
    context: Context,
    server: Option<Spawned>,
    gone: Option<String>,
}

impl<'a> Runner<'a> {
    fn new(options: &'a Options) -> Self {
        let context = Context::new(options.target.clone(), options.patience);
        Self { options, context, server: None, gone: None }
    }

    async fn run(&mut self, case: &'static Case<Context>) -> Record {
        if case.hostile && !self.options.hostile {
            return Record::not_run(case, "published servers die of it: only with --hostile");
        }
        if let Some(gone) = &self.gone {
            return Record::not_run(case, gone.clone());
        }
        let start = Instant::now();
        if let Some(death) = self.server.as_mut().and_then(Spawned::death) {
            // No case has reported this death yet. The next one gets a new server.
            self.server = None;
            self.context.bystander = None;
            let what = format!("the server {death} after the case before this one, which was not run");
            return Record::new(case, Verdict::Failed(what), Vec::new(), start.elapsed());
        }
        if let Err(why) = self.prepare().await {
            self.gone = Some(why.clone());
            return Record::new(case, Verdict::Failed(why), self.context.transcript.lines(), start.elapsed());
        }
        let result = match timeout(CASE_LIMIT, (case.run)(&mut self.context)).await {
            Ok(result) => result,
            Err(_) => Err(Finding::failed(format!("not done after {CASE_LIMIT:?}"))),
        };
        let result = self.aftermath(result).await;
        Record::new(case, result.into(), self.context.transcript.lines(), start.elapsed())
    }

    /// Starts the server, if the suite has to, and connects to it. The cases test what the server does on that
    /// connection.
    async fn reach(&mut self) -> Result<(), String> {
        if let Some(command) = &self.options.spawn {
            let server = Spawned::start(
                command,
                &self.options.target,
                self.options.patience,
                self.options.log.as_deref(),
            )
            .await?;
            self.server = Some(server);
        }
        self.connect().await?.disconnect();
        if self.options.target.tls { Ok(()) } else { self.check_login().await }
    }

    async fn connect(&mut self) -> Result<Peer, String> {
        let target = &self.options.target;
        self.context.peer().await.map_err(|finding| format!("cannot connect to {target}: {finding}"))
    }

    /// Fails if the server refuses the login, or asks for one and there is none. The cases test everything else.
    async fn check_login(&mut self) -> Result<(), String> {
        let target = &self.options.target;
        let first_reply = async {
            let mut session = self.context.silent_session().await?;
            session.handshake().await?;
            match target.login {
                Some(_) => self.context.send_login(&mut session).await?,
                None => session.write(&request(&[b"PING"])).await?,
            }
            session.reply().await
        };
        match timeout(self.options.patience, first_reply).await {
            Ok(Ok(OwnedFrame::Error(error))) if target.login.is_some() => {
                Err(format!("{target} refuses the login: {error}"))
            }
            Ok(Ok(OwnedFrame::Error(error))) if error.starts_with("NOAUTH") => {
                Err(format!("{target} asks for a password: {HOW_TO_LOG_IN}"))
            }
            _ => Ok(()),
        }
    }

    /// A server that runs, and a bystander on it.
    async fn prepare(&mut self) -> Result<(), String> {
        self.context.transcript = Transcript::default();
        if let Some(command) = &self.options.spawn
            && self.server.is_none()
        {
            self.context.bystander = None;
            let patience = self.options.patience;
            self.server = Some(
                Spawned::start(command, &self.options.target, patience, self.options.log.as_deref()).await?,
            );
        }
        // A server with TLS gives a client that says nothing little time.
        if self.context.bystander.is_none() && !self.options.target.tls {
            let peer = self.connect().await?;
            let session = self.context.session_of(peer).await;
            let bystander = session.map_err(|finding| {
                format!("the server does not serve the connection before the case: {finding}")
            })?;
            self.context.bystander = Some(bystander);
        }
        Ok(())
    }

    /// The server must live and serve other connections. If it has died, that is the finding, whatever the case saw.
    async fn aftermath(&mut self, result: Result<(), Finding>) -> Result<(), Finding> {
        let unharmed = self.context.unharmed().await;
        if unharmed.is_err() {
            self.context.bystander = None;
            if let Some(mut server) = self.server.take() {
                // A process that aborts takes a while to die if it writes a report first.
                let patience = Instant::now() + self.options.patience;
                while server.death().is_none() && Instant::now() < patience {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                if let Some(death) = server.death() {
                    return Err(Finding::failed(format!("the server {death}")));
                }
                // The next case needs one that serves.
                server.stop().await;
            }
        }
        if let Some(death) = self.server.as_mut().and_then(Spawned::death) {
            self.server = None;
            self.context.bystander = None;
            return Err(Finding::failed(format!("the server {death}")));
        }
        match (result, unharmed) {
            (Err(Finding::Failed(what)), Err(harm)) => Err(Finding::failed(format!("{what}; {harm}"))),
            (Err(finding), _) | (Ok(()), Err(finding)) => Err(finding),
            (Ok(()), Ok(())) => Ok(()),
        }
    }
}

const HOW_TO_LOG_IN: &str =
    "give it in the URL (rdma://USER:PASSWORD@HOST:PORT), or set VALKEY_RDMA_PASSWORD";

/// Longer than any case takes on a server that answers.
const CASE_LIMIT: Duration = Duration::from_secs(120);
