//! What cannot work over verbs, and how our programs report it: in one line that states what failed and what to do, without a
//! hang.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use valkey_rdma_testkit::describe;

use crate::case::{ServerKind, ServerProgram};
use crate::programs::{self, Programs};
use crate::report::Report;
use crate::server::{ADDRESS, PORT, Server};

/// Longer than every deadline of ours, so that only a hang exceeds it.
const LIMIT: Duration = Duration::from_secs(300);

/// A command line and how it must end.
struct Refusal {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    status: i32,
    /// What its one line must contain.
    says: &'static str,
}

const BENCHMARK: &str = "valkey-rdma-benchmark";
const MOCK: &str = "valkey-rdma-mock";
/// An address for documentation (RFC 5737), which no route leads to.
const NOWHERE: &str = "192.0.2.1";

/// Refused whatever runs on the machine.
const ANYWHERE: [Refusal; 4] = [
    refusal("nothing listens", BENCHMARK, &["--url", "rdma://10.0.0.1:6399"], 1, "refused the connection"),
    refusal("no RDMA path", BENCHMARK, &["--url", "rdma://192.0.2.1"], 1, "can reach 192.0.2.1"),
    refusal("unknown name", BENCHMARK, &["--url", "rdma://no-such-host.invalid"], 1, "no-such-host.invalid"),
    refusal("address of no interface", MOCK, &["--bind", NOWHERE], 1, "cannot listen on 192.0.2.1"),
];

/// Refused while a server listens at the suite's address.
const BESIDE_A_SERVER: [Refusal; 2] = [
    refusal(
        "address in use",
        MOCK,
        &["--bind", ADDRESS, "--port", PORT],
        1,
        "cannot listen on 10.0.0.1:6379",
    ),
    refusal("other device", BENCHMARK, &["--url", "rdma://10.0.0.1?device=mlx5_9"], 1, "not `mlx5_9`"),
];

const WRONG_PASSWORD: Refusal =
    refusal("wrong password", BENCHMARK, &["--url", "rdma://:guess@10.0.0.1"], 1, "WRONGPASS");

const TOO_MANY_CLIENTS: Refusal =
    refusal("server at its client limit", BENCHMARK, &["--url", "rdma://10.0.0.1"], 1, "client limit");

/// As a user whom the limit on locked memory applies to.
const MEMLOCK: Refusal =
    refusal("memlock too small", BENCHMARK, &["--url", "rdma://10.0.0.1"], 1, "memlock limit: 65536 bytes");

/// Refused once the device is gone.
const WITHOUT_DEVICE: [Refusal; 2] = [
    refusal("no device to connect with", BENCHMARK, &["--url", "rdma://10.0.0.1"], 1, "no RDMA device"),
    refusal("no device to listen on", MOCK, &["--bind", ADDRESS], 1, "no RDMA device"),
];

const fn refusal(
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    status: i32,
    says: &'static str,
) -> Refusal {
    Refusal { name, program, args, status, says }
}

/// Names of all of them, as `--only` and `--list` know them.
pub(crate) fn names() -> Vec<String> {
    let all =
        [&ANYWHERE[..], &BESIDE_A_SERVER, &[WRONG_PASSWORD, TOO_MANY_CLIENTS, MEMLOCK], &WITHOUT_DEVICE];
    all.into_iter().flatten().map(|refusal| format!("refused    {}", refusal.name)).collect()
}

/// Runs all of them. The device is gone afterwards.
pub(crate) async fn run_all(programs: &Programs, report: &mut Report) {
    for refusal in ANYWHERE {
        report.refusal(refusal.name, check(programs, &refusal, &[]).await);
    }
    match Server::start(programs, ServerKind { program: ServerProgram::Valkey91, rx_size: None }) {
        Ok(mut server) => {
            for refusal in BESIDE_A_SERVER {
                report.refusal(refusal.name, check(programs, &refusal, &[]).await);
            }
            let limited = ["setpriv", "--reuid=65534", "--clear-groups", "prlimit", "--memlock=65536"];
            report.refusal(MEMLOCK.name, check(programs, &MEMLOCK, &limited).await);
            report.refusal(
                WRONG_PASSWORD.name,
                configured(programs, "requirepass secret", &WRONG_PASSWORD).await,
            );
            report.refusal(
                TOO_MANY_CLIENTS.name,
                configured(programs, "maxclients 1", &TOO_MANY_CLIENTS).await,
            );
            report.refusal("the server outlives it all", server.check());
        }
        Err(failure) => report.refusal("a server that refuses", Err(failure)),
    }
    let gone = programs::run(Command::new("rdma").args(["link", "delete", "rxe0"]), &[], LIMIT).await;
    report.refusal("the device goes", gone.map(drop));
    for refusal in WITHOUT_DEVICE {
        report.refusal(refusal.name, check(programs, &refusal, &[]).await);
    }
}

/// Checks one against a server with a setting changed, over a TCP connection that stays open meanwhile: it is the
/// one client where only one is allowed, and it changes the setting back.
async fn configured(programs: &Programs, setting: &str, refusal: &Refusal) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("CONFIG SET over TCP: {error}");
    let mut connection = TcpStream::connect((ADDRESS, 6379)).await.map_err(failed)?;
    let mut set = async |setting: &str| {
        connection.write_all(format!("CONFIG SET {setting}\r\n").as_bytes()).await.map_err(failed)?;
        let mut answer = [0; 5];
        connection.read_exact(&mut answer).await.map_err(failed)?;
        if &answer == b"+OK\r\n" {
            Ok(())
        } else {
            Err(format!("CONFIG SET {setting} was not answered with OK"))
        }
    };
    set(setting).await?;
    let result = check(programs, refusal, &[]).await;
    set(match setting.split_once(' ') {
        Some(("maxclients", _)) => "maxclients 10000",
        _ => "requirepass \"\"",
    })
    .await?;
    result
}

/// Runs it, behind the commands of `under`, and looks at how it ended.
async fn check(programs: &Programs, refusal: &Refusal, under: &[&str]) -> Result<(), String> {
    let program = programs.ours(refusal.program);
    let mut words = under.iter().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).args(refusal.args).kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, command.output()).await;
    let output = output.map_err(|_| format!("it hung: killed after {} s", LIMIT.as_secs()))?;
    let output = output.map_err(|error| format!("cannot start {}: {error}", refusal.program))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let failure = |what: String| format!("{what}\n{}", programs::tail(&output.stderr));
    if output.status.code() != Some(refusal.status) {
        let ended = describe(output.status);
        return Err(failure(format!("it {ended}, not with exit status {}", refusal.status)));
    }
    let errors = said.lines().filter(|line| line.starts_with("error:")).count();
    if errors != 1 || said.contains("panicked") || said.contains("stack backtrace") {
        return Err(failure(format!("it printed {errors} error lines, not one")));
    }
    if !said.contains(refusal.says) {
        return Err(failure(format!("it does not say {:?}", refusal.says)));
    }
    Ok(())
}
