//! The tool's parts against the mock over the emulated device, within this process.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::sleep;
use valkey_rdma_benches::args::Args;
use valkey_rdma_benches::benchmark::{Outcome, RunError, benchmark};
use valkey_rdma_benches::demo::{Comparison, Pace, demo};
use valkey_rdma_benches::interrupt::Interrupt;
use valkey_rdma_benches::progress::Progress;
use valkey_rdma_benches::report::{Format, Style, write_demo};
use valkey_rdma_benches::target;
use valkey_rdma_server::{DeviceKind, Mock, Server, TransportConfig};
use valkey_rdma_transport::{Listener, Stream};

/// Runs the tool with `flags` against a mock on the emulated device and returns what it printed.
async fn run(flags: &str) -> String {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = TransportConfig::default();
    let server =
        Server::builder(Mock::new()).rdma(DeviceKind::Emulated, loopback, &config).start().await.unwrap();
    let url = server.urls().next().unwrap();
    let line = ["valkey-rdma-benchmark", "--url", &url].into_iter().chain(flags.split_whitespace());
    let args = Args::from_command_line(line).unwrap();
    let format = if args.csv { Format::Csv } else { Format::Table(Style::Plain) };

    let (mut out, mut err) = (Vec::new(), Vec::new());
    let endpoint = target::endpoint(&args).unwrap();
    let never = Interrupt::never();
    let outcome =
        benchmark(&args, &endpoint, &mut out, format, &mut err, Style::Plain, &never).await.unwrap();
    assert_eq!((outcome, String::from_utf8(err).unwrap().as_str()), (Outcome::Right, ""), "{flags}");
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn replies_are_right_in_every_shape() {
    for flags in [
        "-n 300 -c 1 --csv",
        "-n 300 -c 20 -r 50 -P 7 --csv",
        "-n 300 -c 1 --tasks-per-connection 50 -d 5000 --csv",
        "-n 12 -c 2 -P 3 -d 3670016 --csv",
        "-n 20 -c 1 -d 300000 --rx-size 100001 --csv",
    ] {
        let csv = run(flags).await;
        assert_eq!(csv.lines().count(), 4, "{flags}: {csv}");
    }
}

/// A cell of the only result in `csv`, by its column's name.
fn cell(csv: &str, name: &str) -> f64 {
    let mut rows = csv.lines().map(|line| line.split(',').map(|cell| cell.trim_matches('"')));
    let column = rows.next().unwrap().position(|head| head == name).unwrap();
    rows.next().unwrap().nth(column).unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_unpipelined_request_costs_one_doorbell() {
    let csv = run("-n 1000 -c 1 -t ping --csv").await;
    assert!((cell(&csv, "doorbells_per_request") - 1.0).abs() < 0.05, "{csv}");
    assert_eq!(
        (cell(&csv, "bytes_out_per_request"), cell(&csv, "bytes_in_per_request")),
        (14.0, 7.0),
        "{csv}"
    );
}

#[tokio::test]
async fn the_commands_of_a_pipeline_leave_together() {
    let csv = run("-n 1600 -c 1 -P 16 -t ping --csv").await;
    assert!((cell(&csv, "doorbells_per_request") * 16.0 - 1.0).abs() < 0.05, "{csv}");
}

#[tokio::test]
async fn the_table_says_that_the_device_is_software() {
    let table = run("-n 100 -c 2").await;
    assert!(table.contains("transport   emulated,") && table.contains("(software, not RDMA)"), "{table}");
    assert!(table.contains("doorbells") && table.contains("windows"), "{table}");
}

/// A listener, and what the tool needs to connect `connections` times to it.
async fn unattended(connections: usize) -> (Listener, Args) {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(DeviceKind::Emulated, loopback, &TransportConfig::default()).await.unwrap();
    let line = format!("valkey-rdma-benchmark -c {connections} --url emulated://{}", listener.local_addr());
    (listener, Args::from_command_line(line.split(' ')).unwrap())
}

async fn connect_only(args: &Args, interrupt: &Interrupt) -> (Result<Outcome, RunError>, String) {
    let (endpoint, mut err) = (target::endpoint(args).unwrap(), Vec::new());
    let outcome =
        benchmark(args, &endpoint, &mut Vec::new(), Format::Csv, &mut err, Style::Plain, interrupt).await;
    (outcome, String::from_utf8(err).unwrap())
}

/// Clause H-6: the process ends after this, and what it has under way with it.
#[tokio::test(start_paused = true)]
async fn connects_given_up_are_completed_before_the_failure_is_told() {
    let (mut listener, args) = unattended(3).await;
    let taken = Cell::new(0);
    let tool = async {
        let (outcome, told) = connect_only(&args, &Interrupt::never()).await;
        (outcome, told, taken.get())
    };
    let server = async {
        sleep(valkey_rdma_client::Endpoint::DEFAULT_TIMEOUT * 2).await;
        for _ in 0..3 {
            listener.accept().await.unwrap();
            taken.set(taken.get() + 1);
        }
    };
    let ((outcome, told, taken), ()) = tokio::join!(tool, server);
    let failure = outcome.unwrap_err().to_string();
    assert!(failure.contains("no answer within 5s"), "{failure}");
    assert!(told.contains("given up") && told.lines().count() == 1, "{told}");
    assert_eq!(taken, 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_accepts_is_not_waited_for_for_ever() {
    let (_listener, args) = unattended(1).await;
    let (outcome, told) = connect_only(&args, &Interrupt::never()).await;
    assert!(outcome.is_err() && told.contains("Ctrl-C ends at once"), "{told}");
}

/// Clause H-6 again.
#[tokio::test(start_paused = true)]
async fn an_interrupt_begins_no_connects_and_awaits_those_under_way() {
    let (mut listener, args) = unattended(50).await;
    let (ask, interrupt) = Interrupt::by_hand();
    let taken = Cell::new(0);
    let tool = async {
        let (outcome, told) = connect_only(&args, &interrupt).await;
        (outcome, told, taken.get())
    };
    let server = async {
        let mut streams: Vec<Stream> = Vec::new();
        loop {
            streams.push(listener.accept().await.unwrap());
            taken.set(streams.len());
            if streams.len() == 1 {
                ask.send(true).unwrap();
                sleep(Duration::from_secs(2)).await;
            }
        }
    };
    let (outcome, told, taken) = tokio::select! {
        ended = tool => ended,
        () = server => unreachable!("it accepts for ever"),
    };
    assert_eq!(outcome.unwrap(), Outcome::Interrupted);
    assert!(told.contains("Ctrl-C again ends at once"), "{told}");
    assert_eq!(taken, 8, "those under way, and no more");
}

#[tokio::test]
async fn the_demo_compares_both_transports_in_one_table() {
    let pace = Pace { rounds: 1, round: Duration::ZERO };
    let comparisons = demo(pace, Progress::Hidden, &Interrupt::never()).await.unwrap();
    assert_eq!(comparisons.len(), 9);
    assert!(comparisons.iter().all(|comparison| comparison.faults().next().is_none()));
    assert!(comparisons.iter().map(Comparison::ratio).all(|ratio| ratio.is_finite() && ratio > 0.0));

    let mut table = Vec::new();
    write_demo(&mut table, &comparisons, Style::Plain).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("not RDMA") && table.contains("--url rdma://HOST:6379"), "{table}");
    let widths: Vec<_> = table
        .lines()
        .filter(|line| line.contains(" emulated  ") || line.contains(" tcp  "))
        .map(str::len)
        .collect();
    assert_eq!(widths, [widths[0]; 18], "{table}");
}
