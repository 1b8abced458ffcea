//! A Valkey server: connects as the client does, step by step, and asks the server what it is.

mod ask_again;
mod certificate;
mod direct;
mod known_bugs;
mod listener;
mod socket;
mod steps;
mod tls;
mod version;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;
use valkey_rdma_client::{Client, Dialer, Endpoint, Error, Transport, Value};
use valkey_rdma_transport::address;

use self::listener::RdmaListener;
pub use self::socket::{examine_socket, socket_conclusion, socket_endpoint};
use self::steps::{Connected, Steps, cause_of};
use self::version::Version;
use crate::report::{Finding, Report, Section, Verdict};

/// How long the server may take to answer a question, once it has admitted the client.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to a server step by step, and reports each step with the time it took.
pub async fn examine(endpoint: &Endpoint) -> Report {
    let mut report = Report::default();
    // Over TCP it is another report.
    let only = endpoint.clone().with_fallback(false);
    let (section, connected) = Steps::new(endpoint).take(Dialer::new(only, &steps::config())).await;
    report.push(section);
    match connected {
        Ok(connected) => {
            if let Some(info) = &connected.tls {
                report.push(tls::shown(endpoint, info));
            }
            describe(&connected, &mut report).await;
            let _ = timeout(PATIENCE, connected.client.close()).await;
        }
        Err(error) => {
            if let Error::Connect(error) = &error
                && let Some(section) = ask_again::ask_again(endpoint, error.cause()).await
            {
                report.push(section);
            }
            if endpoint.transport() == Transport::Rdma {
                report.push(ask_over_tcp(endpoint).await);
            }
        }
    }
    report
}

/// The last line of a report on a server.
pub fn conclusion(report: &Report, endpoint: &Endpoint) -> String {
    let transport = endpoint.transport();
    match report.works() {
        true => format!("{endpoint} answers over {transport}."),
        false => format!("{endpoint} cannot be used over {transport}."),
    }
}

/// What a connected server says of itself.
async fn describe(connected: &Connected, report: &mut Report) {
    if let Some(version) = library_version(&connected.client).await {
        let transport = connected.windows().into_iter().chain(connected.direct_transfers().await);
        report.push(library_section(transport, &version));
        return;
    }
    let mut section = Section::new("valkey");
    let info = server_info(&connected.client).await;
    let version = match &info {
        Ok(info) => {
            let version = Version::of_info(info);
            section.push(version_finding(info, version));
            version
        }
        Err(error) => {
            section.push(Finding::note("version", format!("INFO server failed: {error:#}")));
            None
        }
    };
    section.findings.extend(connected.windows());
    section.findings.extend(connected.direct_transfers().await);
    let mut speaks_rdma = false;
    if let Ok(info) = &info {
        let finding = listener_finding(info, None);
        let is_over_rdma = connected.info.is_some();
        speaks_rdma = match finding.verdict {
            Verdict::Ok => true,
            Verdict::Warning => false,
            // It does not say.
            _ => is_over_rdma,
        };
        // The connection is one over RDMA, and this server has none: a gateway has answered, and has passed on its INFO.
        section.push(if is_over_rdma && !speaks_rdma {
            Finding::note(
                "rdma listener",
                "INFO server names none: a gateway in front of it answers over RDMA",
            )
        } else {
            finding
        });
    }
    report.push(section);
    // Only what is over RDMA can go wrong there.
    if let Some(version) = version
        && speaks_rdma
    {
        report.push(known_bugs::section(version));
    }
}

/// The version of this project's server library, if the server is made with it: its `INFO`, if it has one, is its program's own.
async fn library_version(client: &Client) -> Option<String> {
    let reply = timeout(PATIENCE, client.command(["HELLO"])).await.ok()?.ok()?;
    let mut fields = reply.into_fields().ok()?;
    let name: String = fields.take("server").ok()?;
    if name == LIBRARY { fields.take("version").ok() } else { None }
}

/// What `HELLO` says on a server that this project's library makes.
const LIBRARY: &str = "valkey-rdma-server";

fn library_section(transport: impl IntoIterator<Item = Finding>, version: &str) -> Section {
    let mut section = Section::new("valkey");
    section.push(Finding::ok("version", format!("a program's own server, on {LIBRARY} {version}")));
    section.findings.extend(transport);
    section
}

async fn server_info(client: &Client) -> Result<String, String> {
    match timeout(PATIENCE, client.command(["INFO", "server"])).await {
        Ok(Ok(value)) => text_of(value).ok_or_else(|| "its reply is not a text".to_owned()),
        Ok(Err(error)) => Err(cause_of(&error)),
        Err(_) => Err(format!("no reply within {PATIENCE:?}")),
    }
}

fn text_of(value: Value) -> Option<String> {
    value.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// The value of a field of INFO.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

fn version_finding(info: &str, version: Option<Version>) -> Finding {
    match version {
        Some(version) => {
            let mode = field(info, "server_mode").map(|mode| format!(", {mode}")).unwrap_or_default();
            Finding::ok("version", format!("Valkey {version}{mode}"))
        }
        None => {
            let redis = field(info, "redis_version").map(|version| format!(" (Redis {version})"));
            let value = format!("not a Valkey{}: RDMA is Valkey's", redis.unwrap_or_default());
            Finding::warning("version", value)
        }
    }
}

/// Whether the server listens on RDMA, by its own words: lines such as `listener1:name=rdma,bind=10.0.0.1,port=6379`. `tried`: the
/// addresses at which RDMA has failed.
fn listener_finding(info: &str, tried: Option<&[SocketAddr]>) -> Finding {
    let listeners = || {
        let lines = info.lines().filter(|line| line.starts_with("listener"));
        lines.filter_map(|line| line.trim_end().split_once(':').map(|(_, value)| value))
    };
    let rdma: Vec<&str> = listeners().filter(|listener| listener.starts_with("name=rdma")).collect();
    if !rdma.is_empty() {
        // One that could have answered is enough.
        let elsewhere = rdma.iter().map(|listener| RdmaListener::of(listener).elsewhere(tried?));
        if let Some(finding) = elsewhere.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().next()) {
            return finding;
        }
        return Finding::ok("rdma listener", rdma.join("; "));
    }
    if listeners().next().is_none() {
        return Finding::note(
            "rdma listener",
            "INFO server names no listeners: older than Valkey 8, or not Valkey",
        );
    }
    Finding::warning("rdma listener", "INFO server names none")
        .remedy(START)
        .remedy("`--rdma-bind ADDRESS --rdma-port 6379`, where ADDRESS is of one of its RDMA devices")
}

const START: &str = "start the server with RDMA: built in (`make BUILD_RDMA=yes`), or `--loadmodule /ABSOLUTE/PATH/valkey-rdma.so`;";

/// After RDMA has failed: whether the server is there at all.
async fn ask_over_tcp(endpoint: &Endpoint) -> Section {
    let mut section = Section::new("over tcp instead");
    let mut tcp = Endpoint::new(Transport::Tcp, endpoint.host(), endpoint.port())
        .with_timeout(endpoint.timeout().min(PATIENCE))
        .with_protocol(endpoint.protocol())
        .with_login_of(endpoint);
    if let Some(tls) = endpoint.tls() {
        tcp = tcp.with_tls(tls.clone());
    }
    match Client::connect(&tcp).await {
        Ok(client) => {
            section.push(Finding::note("answers", "yes, at the same host and port"));
            if let Some(version) = library_version(&client).await {
                section.findings.extend(library_section([], &version).findings);
            } else if let Ok(info) = server_info(&client).await {
                section.push(version_finding(&info, Version::of_info(&info)));
                let addresses = address::resolve(endpoint.host(), endpoint.port()).await.unwrap_or_default();
                section.push(listener_finding(&info, Some(&addresses)));
            }
            let _ = timeout(PATIENCE, client.close()).await;
        }
        // It is there. What to do is in its text.
        Err(error) if error.server().is_some() => {
            section.push(Finding::note("answers", format!("yes, and refuses: {error:#}")));
        }
        Err(_) if endpoint.tls().is_some() && ask_again::speaks_plain(endpoint).await => {
            section.push(Finding::note("answers", "yes, at the same host and port, and without TLS"));
        }
        Err(error) => section.push(
            Finding::note("answers", format!("no: {error:#}"))
                .remedy("is the server running, and is this its host and port?"),
        ),
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_another_address_is_compared_with_the_one_used() {
        let info = |listener: &str| {
            format!("listener0:name=tcp,bind=*,port=7\r\nlistener1:name=rdma,{listener}\r\n")
        };
        let tried = |text: &str| [address::parse(text).expect("an address")];
        for (listener, used, expected) in [
            ("bind=10.0.0.1,port=7", "10.0.0.2:7", Some("RDMA on 10.0.0.1 only, not on 10.0.0.2")),
            ("bind=10.0.0.1,port=7", "[fd00::1]:7", Some("RDMA on 10.0.0.1 only, not on fd00::1")),
            ("bind=10.0.0.1,bind=fd00::1,port=7", "10.0.0.2:7", Some("RDMA on 10.0.0.1, fd00::1 only")),
            ("bind=::,port=7", "10.0.0.2:7", Some("RDMA on :: only, not on 10.0.0.2")),
            ("bind=10.0.0.1,port=8", "10.0.0.1:7", Some("RDMA on port 8, not on 7")),
            ("bind=10.0.0.1,port=7", "10.0.0.1:7", None),
            ("bind=*,bind=-::*,port=7", "[fd00::1]:7", None),
            ("bind=*,port=7", "10.0.0.1:7", None),
            ("bind=fe80::1%eth0,port=7", "[fe80::1]:7", None),
            ("bind=store,port=7", "10.0.0.1:7", None),
            ("port=7", "10.0.0.1:7", None),
        ] {
            let finding = listener_finding(&info(listener), Some(&tried(used)));
            let expected_verdict = if expected.is_some() { Verdict::Warning } else { Verdict::Ok };
            assert_eq!(finding.verdict, expected_verdict, "{listener}: {finding:?}");
            assert!(finding.value.contains(expected.unwrap_or("name=rdma")), "{listener}: {finding:?}");
        }
    }

    #[test]
    fn an_rdma_listener_is_found_in_info() {
        let info = "# Server\r\nvalkey_version:9.1.2\r\nserver_mode:standalone\r\nlistener0:name=tcp,bind=*,port=6379\r\n";
        assert_eq!(listener_finding(info, None).verdict, Verdict::Warning);
        let with = format!("{info}listener1:name=rdma,bind=10.0.0.1,port=6379\r\n");
        assert_eq!(
            listener_finding(&with, None),
            Finding::ok("rdma listener", "name=rdma,bind=10.0.0.1,port=6379")
        );
        assert_eq!(
            version_finding(info, Version::of_info(info)),
            Finding::ok("version", "Valkey 9.1.2, standalone")
        );
        assert_eq!(listener_finding("redis_version:6.2.0\r\n", None).verdict, Verdict::Note);
        assert_eq!(version_finding("redis_version:6.2.0\r\n", None).verdict, Verdict::Warning);
    }
}
