//! A Unix socket: that of a gateway, or of a server of this machine.

use std::path::Path;

use tokio::time::timeout;
use valkey_rdma_client::{Client, Dialer, Endpoint, Transport};

use super::steps::{self, Steps};
use super::{PATIENCE, describe, field, text_of};
use crate::report::{Finding, Report, Section};

/// What [`examine_socket`] connects with: nothing of it but the login and the time limits is used.
#[must_use]
pub fn socket_endpoint() -> Endpoint {
    Endpoint::new(Transport::Tcp, "localhost", 6379)
}

/// Connects to the Unix socket at `path` with the login of `endpoint`, and reports each step with the time it took. Of a gateway, also what it
/// is connected to.
pub async fn examine_socket(path: &Path, endpoint: &Endpoint) -> Report {
    let mut report = Report::default();
    let dialer = Dialer::at_socket(path, endpoint.clone(), &steps::config());
    let (section, connected) = Steps::at_socket(path).take(dialer).await;
    report.push(section);
    if let Ok(connected) = connected {
        describe(&connected, &mut report).await;
        if let Some(section) = gateway(&connected.client).await {
            report.push(section);
        }
        let _ = timeout(PATIENCE, connected.client.close()).await;
    }
    report
}

/// The last line of a report on a Unix socket.
#[must_use]
pub fn socket_conclusion(report: &Report, path: &Path) -> String {
    let path = path.display();
    match report.works() {
        true => format!("unix:{path} answers."),
        false => format!("unix:{path} cannot be used."),
    }
}

/// What a gateway says of its connections. `None`: it is a server.
async fn gateway(client: &Client) -> Option<Section> {
    let asked = timeout(PATIENCE, client.command(["INFO", "gateway"])).await;
    section(&text_of(asked.ok()?.ok()?)?)
}

fn section(info: &str) -> Option<Section> {
    let version = field(info, "gateway_version")?;
    let mut section = Section::new("gateway");
    let server = field(info, "gateway_server").unwrap_or("?");
    section.push(Finding::ok("gateway", format!("version {version}, to {server}")));
    let shared = info.lines().filter_map(|line| line.strip_prefix("gateway_shared_")?.split_once(':'));
    for (_, value) in shared {
        section.push(if value.contains("not connected") {
            Finding::problem("shared connection", value)
        } else if value.contains("instead of rdma") {
            let why = "`valkey-rdma-doctor --url` with the URL of the gateway's server says why";
            Finding::warning("shared connection", value).remedy(why)
        } else {
            Finding::ok("shared connection", value)
        });
    }
    Some(section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;

    #[test]
    fn a_gateway_says_how_it_reaches_its_server() {
        let info = "# Gateway\r\ngateway_version:0.1.0\r\ngateway_server:rdma://10.0.0.7:6379\r\n\
            gateway_shared_0:user=- db=0 resp3,clients=1,transport=rdma,peer=10.0.0.7:6379\r\n\
            gateway_shared_1:user=app db=0 resp3,clients=1,transport=tcp,instead of rdma: no device\r\n\
            gateway_shared_2:user=x db=0 resp3,clients=1,not connected: refused\r\n";
        let found = section(info).expect("a gateway");
        let verdicts: Vec<_> = found.findings.iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Ok, Verdict::Warning, Verdict::Problem]);
        assert_eq!(found.findings[0].value, "version 0.1.0, to rdma://10.0.0.7:6379");
        assert!(section("# Server\r\nvalkey_version:9.1.2\r\n").is_none());
    }
}
