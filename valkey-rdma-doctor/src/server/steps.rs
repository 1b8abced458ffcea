//! The steps of a connect, each with its time: resolve, route, connect, register, tls, hello.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use valkey_rdma_client::{
    Client, Config, ConnectCause, ConnectStep, Dialer, Endpoint, Error, StepFound, StepReport, Transport,
};
use valkey_rdma_program::error_chain;
use valkey_rdma_transport::sync::{Mutex, lock};
use valkey_rdma_transport::tls::TlsInfo;
use valkey_rdma_transport::{Info, TransportError, address};

use super::tls;
use crate::report::{Finding, Section, Verdict};

/// The steps that were taken, and what came of each.
#[derive(Clone)]
pub(super) struct Steps {
    section: Section,
    place: Place,
    /// Of an RDMA or emulated connection.
    info: Option<Info>,
    /// Of a connection with TLS.
    tls: Option<TlsInfo>,
}

/// What is connected to.
#[derive(Clone, Copy)]
enum Place {
    /// A host, which may be an address: nothing is resolved then.
    Host { transport: Transport, is_address: bool },
    /// A Unix socket.
    Socket,
}

/// A client that is logged in.
pub(super) struct Connected {
    pub(super) client: Client,
    /// Of an RDMA or emulated connection.
    pub(super) info: Option<Info>,
    /// Of a connection with TLS.
    pub(super) tls: Option<TlsInfo>,
}

/// Connections that end are not made again.
pub(super) fn config() -> Config {
    Config::default().reconnect(None)
}

impl Steps {
    pub(super) fn new(endpoint: &Endpoint) -> Self {
        let is_address = matches!(address::literal(endpoint.host(), endpoint.port()), Some(Ok(_)));
        let place = Place::Host { transport: endpoint.transport(), is_address };
        Self { section: Section::about("server", endpoint.to_string()), place, info: None, tls: None }
    }

    pub(super) fn at_socket(path: &Path) -> Self {
        let section = Section::about("server", format!("unix:{}", path.display()));
        Self { section, place: Place::Socket, info: None, tls: None }
    }

    /// Takes all steps, as the client does, and returns what came of each. The error is that of the step that has failed.
    pub(super) async fn take(self, dialer: Result<Dialer, Error>) -> (Section, Result<Connected, Error>) {
        let taken = Arc::new(Mutex::new(self));
        let steps = taken.clone();
        let client = match dialer {
            Ok(dialer) => dialer.observed(move |report| lock(&steps).note(report)).into_client().await,
            Err(error) => Err(error),
        };
        let Self { mut section, info, tls, .. } = lock(&taken).clone();
        if let Err(error) = &client
            && !section.findings.iter().any(|finding| finding.verdict == Verdict::Problem)
        {
            // There was no step to take, such as for a name without addresses.
            section.push(Finding::problem("connect", cause_of(error)));
        }
        (section, client.map(|client| Connected { client, info, tls }))
    }

    /// Adds what came of a step.
    fn note(&mut self, report: &StepReport<'_>) {
        // What failed before was not needed: another address is tried.
        let before = self.section.findings.drain(..).map(Finding::at_most_a_warning);
        self.section.findings = before.collect();
        match &report.outcome {
            Ok(StepFound::Encrypted(info)) => {
                self.tls = Some((*info).clone());
                self.section.push(tls::step(info, &ms(report.took)));
            }
            Ok(found) => {
                let Some(value) = self.worked(found, report) else { return };
                let space = if value.is_empty() { "" } else { " " };
                self.section
                    .push(Finding::ok(name(report.step), format!("{value}{space}in {}", ms(report.took))));
            }
            Err(cause) => {
                let (text, remedies) = self.failed(cause, report);
                let step = if is_of_tls(cause) { "tls" } else { name(report.step) };
                let finding = Finding::problem(step, format!("after {}: {text}", ms(report.took)));
                self.section.push(remedies.iter().fold(finding, |finding, step| finding.remedy(*step)));
            }
        }
    }

    /// What a step found. `None`: there was nothing to do.
    fn worked(&mut self, found: &StepFound<'_>, report: &StepReport<'_>) -> Option<String> {
        let address = report.address.map(|address| address.to_string()).unwrap_or_default();
        Some(match (found, self.place) {
            (StepFound::Addresses(_), Place::Host { is_address: true, .. }) => return None,
            (StepFound::Addresses(addresses), _) => {
                let texts: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
                texts.join(", ")
            }
            (StepFound::Device(over, from), _) => {
                let mtu = over.mtu.map(|mtu| format!(", MTU {mtu}")).unwrap_or_default();
                format!("{address} from {} over {}{mtu},", from.ip(), over.name)
            }
            (StepFound::Windows(info), _) => {
                self.info = Some((*info).clone());
                format!("the server offers a window of {} bytes", info.peer_window)
            }
            (StepFound::Protocol(protocol), _) => protocol.to_string(),
            (_, Place::Host { transport: Transport::Tcp, .. }) => address,
            _ => String::new(),
        })
    }

    /// Why a step failed, and what to do.
    fn failed(&self, cause: &ConnectCause, report: &StepReport<'_>) -> (String, &'static [&'static str]) {
        let is_emulated = matches!(self.place, Place::Host { transport: Transport::Emulated, .. });
        match (report.step, cause) {
            // A server may report what is wrong with TLS at the login.
            (_, cause) if is_of_tls(cause) => (cause.to_string(), tls::remedies(cause)),
            // Its own text says what to do.
            (ConnectStep::LogIn, cause) => (cause.to_string(), &[]),
            (step, ConnectCause::Deadline { limit, .. }) => {
                let text = match (step, report.address) {
                    // As the client does: each address has its share of the time.
                    (ConnectStep::Route | ConnectStep::Connect | ConnectStep::Register, Some(address)) => {
                        format!("{address}: no answer within {}, its share of `timeout=`", ms(report.limit))
                    }
                    _ => format!("no answer within the {} of `timeout=`", ms(*limit)),
                };
                (text, no_answer(step, is_emulated))
            }
            (_, ConnectCause::Resolve(error)) => {
                (error_chain(&**error), &["check the name: `getent hosts NAME`; or give the host's address"])
            }
            (ConnectStep::Route, ConnectCause::Device(error)) => {
                (error_chain(&**error), &["run `valkey-rdma-doctor` here: it examines this machine"])
            }
            (_, ConnectCause::Device(error)) => (error_chain(&**error), remedies(error, is_emulated)),
            (ConnectStep::Connect, ConnectCause::Io(error)) => {
                let address = report.address.map(|address| format!("{address}: ")).unwrap_or_default();
                let text = format!("{address}{}", error_chain(&**error));
                (text, &["is the server running, and is this its host and port?"])
            }
            (_, ConnectCause::Socket(error)) => (
                error_chain(&**error),
                &[
                    "does a gateway or server listen there (`ss -lx`), and may this user use the socket (`ls -l`)?",
                ],
            ),
            (_, cause) => (cause.to_string(), &[]),
        }
    }
}

/// Whether there is no TLS connection.
fn is_of_tls(cause: &ConnectCause) -> bool {
    matches!(cause, ConnectCause::Tls(_) | ConnectCause::SilentInTls { .. } | ConnectCause::NoTlsOverRdma)
}

/// A step, as reports name it.
fn name(step: ConnectStep) -> &'static str {
    match step {
        ConnectStep::Resolve => "resolve",
        ConnectStep::Route => "route",
        ConnectStep::Register => "register",
        ConnectStep::Encrypt => "tls",
        ConnectStep::LogIn => "hello",
        _ => "connect",
    }
}

/// What to do about a step that was not done in time.
fn no_answer(step: ConnectStep, is_emulated: bool) -> &'static [&'static str] {
    match step {
        ConnectStep::Resolve => {
            &["the name server does not answer: /etc/resolv.conf; or give the host's address"]
        }
        ConnectStep::Register => {
            &["the peer accepted and does not answer: is it a Valkey server, and not stopped?"]
        }
        ConnectStep::Connect if is_emulated => ONLY_OURS,
        _ => &[
            "check host, port, firewall (RoCE v2 is UDP port 4791) and that the server runs; or raise `timeout=`",
        ],
    }
}

/// Why a connection does not work, without its address: the report has that already, and for a Unix socket the client has none.
pub(super) fn cause_of(error: &Error) -> String {
    match error {
        Error::Connect(error) => error.cause().to_string(),
        Error::Lost(lost) => error_chain(lost.cause()),
        other => error_chain(other),
    }
}

impl Connected {
    /// The windows of the connection.
    pub(super) fn windows(&self) -> Option<Finding> {
        let info = self.info.as_ref()?;
        let (ours, count, theirs) = (info.window, info.windows, info.peer_window);
        let value = format!("{count} of {ours} bytes here, {theirs} bytes at the server");
        Some(Finding::ok("windows", value))
    }
}

/// Other servers may listen there and never answer.
const ONLY_OURS: &[&str] =
    &["only this project's servers answer emulated://, such as `valkey-rdma-mock --device emulated`"];

/// What to do about an error whose own text does not say enough.
fn remedies(error: &TransportError, is_emulated: bool) -> &'static [&'static str] {
    match error {
        TransportError::Refused { .. } if is_emulated => ONLY_OURS,
        TransportError::Refused { .. } => &[
            "start the server with `--rdma-bind ADDRESS --rdma-port PORT`, where ADDRESS is of one of its RDMA devices",
            "(in a module build also `--loadmodule /ABSOLUTE/PATH/valkey-rdma.so`)",
        ],
        TransportError::Rejected { reason, .. } if reason.is_transient() => &[
            "the server's machine: `rdma resource show cm_id` lists what it remembers; it forgets an ended connection within some seconds",
            "if this stays: restart the server; it keeps a connection whose client vanished without a disconnect",
        ],
        TransportError::Unreachable { .. } => {
            &["on both machines: `valkey-rdma-doctor`; then `listen` on one and `check` on the other"]
        }
        _ => &[],
    }
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_no_step_leads_to_is_a_problem() {
        let nowhere = Endpoint::new(Transport::Tcp, "", 1);
        let (section, connected) = Steps::new(&nowhere).take(Dialer::new(nowhere, &config())).await;
        assert!(connected.is_err());
        let found: Vec<_> =
            section.findings.iter().map(|finding| (&finding.id[..], finding.verdict)).collect();
        assert_eq!(found, [("connect", Verdict::Problem)], "{section:?}");
    }

    /// Before, the first address of a name used up the time of all.
    #[test]
    fn an_address_that_does_not_answer_is_a_warning_once_the_next_one_is_tried() {
        let endpoint: Endpoint = "valkey://store?timeout=3s".parse().expect("a URL");
        let mut steps = Steps::new(&endpoint);
        let limit = Duration::from_millis(1500);
        let silent = ConnectCause::Deadline { limit: endpoint.timeout(), connected: false };
        let report = |address: &str, took, outcome| StepReport {
            step: ConnectStep::Connect,
            address: Some(address.parse().expect("an address")),
            took,
            limit,
            outcome,
        };
        steps.note(&report("10.0.0.1:6379", limit, Err(&silent)));
        assert_eq!(steps.section.findings[0].verdict, Verdict::Problem);
        steps.note(&report("10.0.0.2:6379", Duration::ZERO, Ok(StepFound::Accepted)));
        let found: Vec<_> =
            steps.section.findings.iter().map(|finding| (&finding.id[..], finding.verdict)).collect();
        assert_eq!(found, [("connect", Verdict::Warning), ("connect", Verdict::Ok)]);
        let text = "after 1500.0 ms: 10.0.0.1:6379: no answer within 1500.0 ms, its share of `timeout=`";
        assert_eq!(steps.section.findings[0].value, text);
        assert_eq!(steps.section.findings[1].value, "10.0.0.2:6379 in 0.0 ms");
    }
}
