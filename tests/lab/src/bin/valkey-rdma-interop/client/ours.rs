//! valkey-rdma-benchmark: it checks every reply itself; here its report is held against what was asked for.

use tokio::process::Command;

use super::Rates;
use crate::case::{Case, Test};
use crate::programs::{self, Programs, tail};
use crate::server::{ADDRESS, PORT};

pub(super) async fn run(programs: &Programs, case: &Case) -> Result<Rates, String> {
    let shape = case.load.shape;
    let mut command = Command::new(programs.ours("valkey-rdma-benchmark"));
    command.args(["--csv", "--url", &format!("rdma://{ADDRESS}:{PORT}")]);
    command.args(["-n", &case.load.requests.to_string()]);
    command.args(["-c", &shape.connections.to_string()]);
    command.args(["--tasks-per-connection", &shape.tasks.to_string()]);
    command.args(["-P", &shape.pipeline.to_string()]);
    match case.load.test {
        Test::Ping => command.args(["-t", "ping"]),
        Test::SetGet(len) => command.args(["-t", "set,get", "-d", &len.to_string()]),
    };
    let output = programs::run(&mut command, &[], case.limit()).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    verify(&text, case.load.test, case.load.requests)
        .map_err(|story| format!("{story}\n{}", [tail(&output.stdout), tail(&output.stderr)].concat()))
}

/// One row per test, as many replies as requests, no errors, and all of it over RDMA.
fn verify(csv: &str, test: Test, requests: usize) -> Result<Rates, String> {
    let mut rows = csv.lines().map(cells);
    let head = rows.next().ok_or("it printed nothing")?;
    let rows: Vec<Vec<&str>> = rows.collect();
    let column = |name: &str| {
        let at = head.iter().position(|&cell| cell == name);
        at.ok_or_else(|| format!("its report has no column {name:?}"))
    };
    let (name, rate) = (column("test")?, column("rps")?);
    let (replies, errors, transport) = (column("replies")?, column("errors")?, column("transport")?);

    if rows.len() != test.names().len() {
        return Err(format!("it reports {} tests, not {}", rows.len(), test.names().len()));
    }
    let mut rates = Vec::new();
    for (row, wanted) in rows.iter().zip(test.names()) {
        let cell = |at: usize| row.get(at).copied().unwrap_or_default();
        let expect = |what: &str, at: usize, wanted: &str| {
            let got = cell(at);
            if got == wanted { Ok(()) } else { Err(format!("it reports {what} {got:?}, not {wanted:?}")) }
        };
        expect("test", name, wanted)?;
        expect("replies", replies, &requests.to_string())?;
        expect("errors", errors, "0")?;
        expect("transport", transport, "rdma")?;
        rates.push(cell(rate).parse().map_err(|_| format!("its rate {:?} is not a number", cell(rate)))?);
    }
    Ok(rates)
}

/// The quoted cells of a line; none of ours holds a quote or a comma.
fn cells(line: &str) -> Vec<&str> {
    line.split(',').map(|cell| cell.trim_matches('"')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#""test","rps","replies","errors","transport""#;

    #[test]
    fn a_full_report_gives_the_rates() {
        let csv = format!(
            "{HEAD}\n\"SET\",\"12.50\",\"800\",\"0\",\"rdma\"\n\"GET\",\"9\",\"800\",\"0\",\"rdma\"\n"
        );
        assert_eq!(verify(&csv, Test::SetGet(3), 800), Ok(vec![12.5, 9.0]));
    }

    #[test]
    fn missing_replies_errors_tests_and_another_transport_are_seen() {
        for row in [
            r#""PING_MBULK","1","799","0","rdma""#,
            r#""PING_MBULK","1","800","1","rdma""#,
            r#""PING_MBULK","1","800","0","tcp""#,
            r#""SET","1","800","0","rdma""#,
            "",
        ] {
            assert!(verify(&format!("{HEAD}\n{row}"), Test::Ping, 800).is_err(), "{row}");
        }
        assert!(verify("", Test::Ping, 800).is_err());
    }
}
