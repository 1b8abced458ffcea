//! valkey-rdma-benchmark: it checks every reply itself; its report is compared with the request.

use tokio::process::Command;
use valkey_rdma_testkit::csv_column;

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
        .map_err(|failure| format!("{failure}\n{}", [tail(&output.stdout), tail(&output.stderr)].concat()))
}

/// One row per test, as many replies as requests, no errors, and all of it over RDMA.
fn verify(csv: &str, test: Test, requests: usize) -> Result<Rates, String> {
    let tests = test.names();
    let requests = requests.to_string();
    let every = |value| vec![value; tests.len()];
    let expected = [
        ("test", tests.to_vec()),
        ("replies", every(requests.as_str())),
        ("errors", every("0")),
        ("transport", every("rdma")),
    ];
    for (name, wanted) in expected {
        let got = csv_column(csv, name)?;
        if got != wanted {
            return Err(format!("it reports {name} {got:?}, not {wanted:?}"));
        }
    }
    let rate = |text: &String| text.parse().map_err(|_| format!("its rate {text:?} is not a number"));
    csv_column(csv, "rps")?.iter().map(rate).collect()
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
