//! The tool's parts against the mock over the emulated device, within this process.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::Duration;

use crate::drive::{Background, DialError, Limit, Opening, Target, complete, dial, open_all};
use crate::measure::Comparison;
use crate::program::args::Args;
use crate::program::benchmark::{Outcome, benchmark};
use crate::program::console::Console;
use crate::program::demo::{Pace, demo};
use crate::report::{Form, Format, Style, write_comparisons};
use crate::run::Progress;
use tokio::time::sleep;
use valkey_rdma_client::{Endpoint, Transport};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};
use valkey_rdma_program::Interrupt;
use valkey_rdma_transport::{AnyStream, Listener, Stream};

/// Runs the tool with `flags` against a mock on the emulated device and returns what it printed.
async fn run(flags: &str) -> String {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = TransportConfig::default();
    let server =
        Server::builder(Mock::new()).rdma(DeviceKind::Emulated, loopback, &config).start().await.unwrap();
    let url = server.urls().next().unwrap();
    let line = ["valkey-rdma-benchmark", "--url", &url].into_iter().chain(flags.split_whitespace());
    let args = Args::from_command_line(line).unwrap();
    let form = if args.csv { Form::Csv } else { Form::Table(Style::Plain) };

    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console {
        out: &mut out,
        format: Format { form, precision: 3, percentiles: crate::report::Percentiles::USUAL },
        style: Style::Plain,
        err: &mut err,
        err_style: Style::Plain,
    };
    let target = args.target().unwrap();
    let outcome = benchmark(&args, &target, &mut console, &Interrupt::never()).await.unwrap();
    let err = String::from_utf8(err).unwrap();
    let complaints: Vec<&str> = err.lines().filter(|line| !line.starts_with("note: writes ")).collect();
    assert_eq!((outcome, complaints.as_slice()), (Outcome::Right, [].as_slice()), "{flags}");
    String::from_utf8(out).unwrap()
}

/// The value of the only test of a run in this column.
fn column(csv: &str, name: &str) -> f64 {
    // All cells are quoted; none contains a quote.
    let mut rows = csv.lines().map(|line| line.trim_matches('"').split("\",\""));
    let place = rows.next().unwrap().position(|cell| cell == name).unwrap();
    rows.next().unwrap().nth(place).unwrap().parse().unwrap()
}

#[tokio::test]
async fn values_are_copied_once_and_those_of_a_pool_are_not() {
    for (shape, len) in ["-c 2 -P 3", "-c 1 --tasks-per-connection 3"]
        .into_iter()
        .flat_map(|shape| [8_192, 40_000].map(|len| (shape, len)))
    {
        let copied = run(&format!("-n 30 {shape} -d {len} -t set --csv")).await;
        let pooled = run(&format!("-n 30 {shape} -d {len} -t set --csv --pool")).await;
        let [copied, pooled] = [copied, pooled].map(|csv| column(&csv, "bytes_copied_per_request"));
        let len = f64::from(len);
        assert!(copied > len && copied < len + 1_000.0, "{shape}: {copied}");
        assert!(pooled > 0.0 && pooled < 1_000.0, "{shape}: {pooled}");
    }
}

#[tokio::test]
async fn replies_are_right_in_every_shape() {
    for flags in [
        "-n 300 -c 1 -t ping_mbulk,set,get --verify full --csv",
        "-n 300 -c 20 -r 50 -P 7 -t ping_mbulk,set,get --verify full --csv",
        "-n 300 -c 1 --tasks-per-connection 50 -d 5000 -t ping_mbulk,set,get --verify full --csv",
        "-n 12 -c 2 -P 3 -d 3670016 -t ping_mbulk,set,get --verify full --csv",
        "-n 20 -c 1 -d 300000 --rx-size 100001 -t ping_mbulk,set,get --verify full --csv",
        "-n 300 -c 4 -P 3 -r 50 -d 40000 --pool -t ping_mbulk,set,get --verify full --csv",
        "-n 300 -c 1 --tasks-per-connection 9 -r 50 -d 40000 --pool -t ping_mbulk,set,get --verify full --csv",
    ] {
        let csv = run(flags).await;
        assert_eq!(csv.lines().count(), 4, "{flags}: {csv}");
    }
}

#[tokio::test]
async fn an_unpipelined_request_costs_one_doorbell() {
    let csv = run("-n 1000 -c 1 -t ping_mbulk --csv").await;
    assert!((column(&csv, "doorbells_per_request") - 1.0).abs() < 0.05, "{csv}");
    assert_eq!(
        (column(&csv, "bytes_out_per_request"), column(&csv, "bytes_in_per_request")),
        (14.0, 7.0),
        "{csv}"
    );
}

#[tokio::test]
async fn the_commands_of_a_pipeline_leave_together() {
    let csv = run("-n 1600 -c 1 -P 16 -t ping_mbulk --csv").await;
    assert!((column(&csv, "doorbells_per_request") * 16.0 - 1.0).abs() < 0.05, "{csv}");
}

#[tokio::test]
async fn the_table_says_that_the_device_is_software() {
    let table = run("-n 100 -c 2 -t ping_mbulk,set").await;
    assert!(table.contains("transport   emulated,") && table.contains("(software, not RDMA)"), "{table}");
    assert!(table.contains("doorbells") && table.contains("windows"), "{table}");
}

#[tokio::test]
async fn threads_without_a_connection_are_not_reported() {
    let csv = run("-n 30 -c 2 --threads 8 -t ping_mbulk --csv").await;
    assert_eq!((column(&csv, "connections"), column(&csv, "threads")), (2.0, 2.0), "{csv}");
}

/// A listener that does not accept until asked, and how to reach it.
async fn unattended() -> (Listener, Target) {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(DeviceKind::Emulated, loopback, &TransportConfig::default()).await.unwrap();
    let addr = listener.local_addr();
    let target = Target::new(Endpoint::new(Transport::Emulated, addr.ip().to_string(), addr.port()));
    (listener, target)
}

/// Opens connections as a thread of the tool does, up to where the process may end.
async fn connect_only(
    target: &Target,
    connections: usize,
    interrupt: &Interrupt,
) -> (Result<Option<Vec<AnyStream>>, DialError>, String) {
    let (background, opening) = (Background::from_now(), Opening::new(false, interrupt.clone()));
    let opened = open_all(connections, &opening, || {
        let target = target.clone();
        async move { dial(&target).await }
    })
    .await;
    let printed = RefCell::new(String::new());
    if !matches!(opened, Ok(Some(_))) {
        complete(background, interrupt, |text| *printed.borrow_mut() = text.to_owned()).await;
    }
    (opened, printed.into_inner())
}

/// Clause H-6: the process ends after this, with all pending connects.
#[tokio::test(start_paused = true)]
async fn connects_given_up_are_completed_before_the_failure_is_reported() {
    let (mut listener, target) = unattended().await;
    let taken = Cell::new(0);
    let tool = async {
        let (opened, printed) = connect_only(&target, 3, &Interrupt::never()).await;
        (opened, printed, taken.get())
    };
    let server = async {
        sleep(Endpoint::DEFAULT_TIMEOUT * 2).await;
        for _ in 0..3 {
            listener.accept().await.unwrap();
            taken.set(taken.get() + 1);
        }
    };
    let ((opened, printed, taken), ()) = tokio::join!(tool, server);
    let failure = opened.unwrap_err().to_string();
    assert!(failure.contains("no answer within 5s"), "{failure}");
    assert!(printed.contains("abandoned connects"), "{printed}");
    assert_eq!(taken, 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_accepts_is_not_waited_for_for_ever() {
    let (_listener, target) = unattended().await;
    let (opened, printed) = connect_only(&target, 1, &Interrupt::never()).await;
    assert!(opened.is_err() && printed.contains("Ctrl-C ends at once"), "{printed}");
}

/// Clause H-6 again.
#[tokio::test(start_paused = true)]
async fn an_interrupt_begins_no_connects_and_awaits_those_under_way() {
    let (mut listener, target) = unattended().await;
    let (ask, interrupt) = Interrupt::by_hand();
    let taken = Cell::new(0);
    let tool = async {
        let (opened, _) = connect_only(&target, 50, &interrupt).await;
        (opened, taken.get())
    };
    let server = async {
        let mut streams: Vec<Stream> = Vec::new();
        loop {
            streams.push(listener.accept().await.unwrap());
            taken.set(streams.len());
            if streams.len() == 1 {
                ask.cancel();
                sleep(Duration::from_secs(2)).await;
            }
        }
    };
    let (opened, taken) = tokio::select! {
        ended = tool => ended,
        () = server => unreachable!("it accepts for ever"),
    };
    assert!(opened.is_err() || opened.is_ok_and(|opened| opened.is_none()), "interrupted");
    assert_eq!(taken, Opening::AT_ONCE, "the pending ones, and no more");
}

#[tokio::test]
async fn the_demo_compares_both_transports_in_one_table() {
    let pace = Pace { rounds: 2, turn: Limit::Requests(200) };
    let shown = demo(pace, Progress::Hidden, &Interrupt::never()).await.unwrap();
    let comparisons = &shown.comparisons;
    assert_eq!(comparisons.len(), 9);
    assert!(shown.is_right());
    let ratio = |comparison: &Comparison| comparison.ratio(|round| round.rate).mean;
    assert!(comparisons.iter().map(ratio).all(|ratio| ratio.is_finite() && ratio > 0.0));

    let mut table = Vec::new();
    write_comparisons(&mut table, ["emulated", "tcp"], comparisons, Style::Plain).unwrap();
    let table = String::from_utf8(table).unwrap();
    let rows = table.lines().filter(|line| line.contains(" emulated  ") || line.contains(" tcp  "));
    assert_eq!(rows.count(), 18, "{table}");
}
