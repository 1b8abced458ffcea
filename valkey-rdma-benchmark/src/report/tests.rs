use std::time::Duration;

use super::*;
use crate::drive::{Arrivals, Choice, Pace};
use crate::measure::{
    Counters, Environment, Fault, FaultKind, Faults, Found, Outage, Shape, Sweep, SweepStep, Tally, Verdict,
};

fn run() -> RunInfo {
    RunInfo {
        target: "valkey://127.0.0.1:6379".to_owned(),
        transport: "tcp".to_owned(),
        link: "no device".to_owned(),
        tls: None,
        shape: Shape {
            connections: 2,
            tasks_per_connection: None,
            library: None,
            pipeline: 1,
            threads: 1,
            runtime_threads: 1,
            sizes: "3".to_owned(),
            keyspace: None,
            key_order: None,
            seed: None,
        },
        pace: Pace::Closed,
        connect_time: Duration::from_micros(1500),
        verify: crate::drive::Verify::Length,
        environment: Environment { facts: vec![("kernel", "Linux 6.1".to_owned())] },
    }
}

fn result(faults: Faults) -> TestResult {
    let mut tally = Tally { faults, ..Tally::default() };
    for _ in 0..10 {
        tally.service.record(Duration::from_millis(1));
    }
    TestResult { elapsed: Duration::from_millis(5), tally, ..TestResult::empty("SET") }
}

const fn format(form: Form) -> Format {
    Format { form, precision: 3, percentiles: Percentiles::USUAL }
}

const CSV: Format = format(Form::Csv);
const QUIET: Format = format(Form::Quiet);
const TABLE: Format = format(Form::Table(Style::Plain));

fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn csv_starts_with_the_header_of_valkey_benchmark() {
    let head = written(|out| CSV.write_head(out, &run()));
    let theirs = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"";
    let ours = concat!(
        ",\"p99_9_latency_ms\",\"replies\",\"errors\",\"transport\",\"connections\",\"tasks_per_connection\",",
        "\"pipeline\",\"threads\",\"data_bytes\",\"keyspace\",\"connect_ms\",\"intended_rps\",",
        "\"service_p50_ms\",\"service_p99_ms\",\"payload_bytes_per_second\",\"client_cpu_us_per_request\",\"connections_lost\",\"tls\",\"way\",",
        "\"client_cores\",\"server_cpu_us_per_request\",\"server_cores\",",
        "\"work_requests_per_request\",",
    );
    assert!(head.starts_with(theirs), "{head}");
    assert!(head[theirs.len()..].starts_with(ours), "{head}");
    assert_eq!(head.lines().count(), 1);
}

#[test]
fn the_table_says_how_keys_are_drawn_and_which_rate_is_intended() {
    let keyspace = std::num::NonZeroU64::new(1000);
    let of = |key_order: &str, seed, pace| {
        let shape = Shape { keyspace, key_order: Some(key_order.to_owned()), seed, ..run().shape };
        let run = RunInfo { shape, pace, ..run() };
        let head = written(|out| TABLE.write_head(out, &run));
        head.lines().find(|line| line.starts_with("requests ")).unwrap_or_default().to_owned()
    };
    let pace = Pace::Open { rate: 50_000.0, arrivals: Arrivals::Poisson };
    assert_eq!(
        of("zipf:0.99", Some(7), pace),
        "requests    1 at a time, values of 3 bytes, 1000 keys (zipf:0.99, --seed 7), 1 thread, 50000/s intended (poisson)"
    );
    assert_eq!(
        of("sequential", None, Pace::Closed),
        "requests    1 at a time, values of 3 bytes, 1000 keys (sequential), 1 thread"
    );
}

/// What was found before the interrupt says nothing about the rates that were not tried.
#[test]
fn an_interrupted_sweep_judges_no_rate() {
    let step = SweepStep { rate: 500.0, result: result(Faults::default()), verdict: Verdict::Good };
    let sweep = |steps| Sweep {
        title: "SET".to_owned(),
        closed: result(Faults::default()),
        steps,
        limit: None,
        targeted: false,
        interrupted: true,
    };
    let slow = SweepStep { verdict: Verdict::Behind, ..step.clone() };
    let faster = SweepStep { rate: 900.0, ..slow.clone() };
    for (steps, expected) in [
        (vec![], "interrupted before a good rate was found; closed loop: 2000 requests/s"),
        (vec![slow], "interrupted before a good rate was found"),
        (vec![step, faster], "interrupted; highest good rate: at least 500 requests/s"),
    ] {
        let sweep = sweep(steps);
        let text = written(|out| write_sweep(out, &run(), &sweep, Style::Plain));
        assert!(text.contains(expected), "{expected} in {text}");
        assert!(!text.contains("no rate was good"), "{text}");
        let found = Found { sweeps: vec![(run(), sweep)], interrupted: true, ..Found::default() };
        let page = html::page(&found);
        assert!(!page.contains("No rate was good") && page.contains("Interrupted"), "{page}");
    }
}

#[test]
fn a_sweep_says_why_a_rate_is_not_good_and_when_one_is() {
    let step = |rate, verdict| SweepStep { rate, result: result(Faults::default()), verdict };
    let steps =
        [(100.0, Verdict::Good), (200.0, Verdict::P99), (300.0, Verdict::Behind), (400.0, Verdict::Errors)];
    let sweep = Sweep {
        title: "SET".to_owned(),
        closed: result(Faults::default()),
        steps: steps.map(|(rate, verdict)| step(rate, verdict)).to_vec(),
        limit: Some(Duration::from_millis(2)),
        targeted: true,
        interrupted: false,
    };
    let text = written(|out| write_sweep(out, &run(), &sweep, Style::Plain));
    let verdicts: Vec<_> =
        text.lines().skip(1).take(4).filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(verdicts, ["good", "p99", "behind", "errors"], "{text}");
    let rule = "good: no errors, at most 2 % behind, p99 within 2.000 ms";
    assert!(text.contains(&format!("highest good rate: 100 requests/s ({rule})")), "{text}");
    let found = Found { sweeps: vec![(run(), sweep)], ..Found::default() };
    let (page, json) = (html::page(&found), written(|out| json::write(out, &found)));
    assert!(page.contains(rule) && page.contains("400/s, errors"), "{page}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let steps = json["sweeps"][0]["steps"].as_array().unwrap();
    assert_eq!(
        steps.iter().map(|step| step["good"] == true).collect::<Vec<_>>(),
        [true, false, false, false]
    );
    assert_eq!(steps.last().unwrap()["verdict"], "errors");
}

#[test]
fn json_has_the_figures_of_a_test_under_their_names() {
    let found = Found { tests: vec![(run(), result(Faults::default()))], ..Found::default() };
    let text = written(|out| json::write(out, &found));
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let names: Vec<_> = all["tests"][0].as_object().unwrap().keys().map(String::as_str).collect();
    for name in [
        "test",
        "elapsed_s",
        "replies",
        "requests_per_second",
        "payload_bytes_per_second",
        "latency_ms",
        "service_time_ms",
        "errors",
        "connections_lost",
        "outages",
        "client_cpu_us_per_request",
        "counters_per_request",
        "rate_over_time",
        "run",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert_eq!(all["tests"][0]["requests_per_second"], 2000.0);
}

/// The transport does not count their bytes.
#[test]
fn direct_transfers_have_no_share_of_the_link() {
    let mut stats = valkey_rdma_transport::Stats::default();
    stats.protocol.bytes_sent = 50_000_000;
    let result = TestResult { counters: Some(Counters::from(&stats)), ..result(Faults::default()) };
    let direct = Choice::direct(3, crate::drive::Verify::Length);
    for (library, is_known) in [(None, true), (Some(direct), false)] {
        let environment = Environment { facts: vec![("link", "100 Gb/sec (4X EDR)".to_owned())] };
        let run = RunInfo { shape: Shape { library, ..run().shape }, environment, ..run() };
        let table = written(|out| TABLE.write_test(out, &run, &result));
        assert_eq!(table.contains("80.0 % of the link's 12.5 GB/s"), is_known, "{table}");
        let found = Found { tests: vec![(run, result.clone())], ..Found::default() };
        let text = written(|out| json::write(out, &found));
        assert_eq!(text.contains("\"share_of_link\""), is_known, "{text}");
    }
}

#[test]
fn csv_rows_have_as_many_cells_as_the_header() {
    let head = written(|out| CSV.write_head(out, &run()));
    let row = written(|out| CSV.write_test(out, &run(), &result(Faults::default())));
    assert_eq!(row.matches("\",\"").count(), head.matches("\",\"").count());
    assert!(row.starts_with("\"SET\",\"2000.00\",\"1.0"), "{row}");
}

#[test]
fn quiet_prints_the_line_of_valkey_benchmark() {
    let head = written(|out| QUIET.write_head(out, &run()));
    let line = written(|out| QUIET.write_test(out, &run(), &result(Faults::default())));
    assert_eq!(head, "");
    assert_eq!(line, "SET: 2000.00 requests per second, p50=1.000 msec\n");
}

#[test]
fn table_columns_are_aligned() {
    let head = written(|out| TABLE.write_head(out, &run()));
    let row = written(|out| TABLE.write_test(out, &run(), &result(Faults::default())));
    assert_eq!(head.lines().last().map(str::len), row.lines().last().map(str::len), "{head}{row}");
    assert!(!head.contains('\x1b'));
}

#[test]
fn faults_are_counted_by_kind_and_the_first_are_reported() {
    let mut faults = Faults::default();
    let detail = "GET key:000000000001: byte 2 is 0x41, not 0x42".to_owned();
    faults.add_many(Fault { kind: FaultKind::WrongBytes, detail }, 7);
    let text = written(|out| write_faults(out, &result(faults), Style::Plain));
    assert_eq!(
        text,
        "error: SET: 7 wrong (wrong bytes 7)\n  wrong bytes: GET key:000000000001: byte 2 is 0x41, not 0x42\n  ... and 6 more\n"
    );
}

#[test]
fn outages_are_reported_with_their_ends() {
    let seconds = Duration::from_secs;
    let outages =
        vec![Outage { from: seconds(3), to: Some(seconds(5)) }, Outage { from: seconds(9), to: None }];
    let result = TestResult { outages, lost: 4, ..result(Faults::default()) };
    let text = written(|out| write_faults(out, &result, Style::Plain));
    assert_eq!(
        text,
        "outage: SET: no connection from 3.000 s to 5.000 s: 2.000 s\noutage: SET: no connection from 9.000 s to the end\n  SET: 4 connections lost\n"
    );
}

#[test]
fn the_parts_of_a_mix_have_rows_of_their_own() {
    let mut mixed = result(Faults::default());
    mixed.parts = vec!["SET".to_owned(), "GET".to_owned()];
    mixed.tally.parts = vec![mixed.tally.service.clone(), mixed.tally.service.clone()];
    let rows = written(|out| TABLE.write_test(out, &run(), &mixed));
    let names: Vec<_> = rows.lines().map(|line| line[..16].trim_end()).collect();
    assert_eq!(names, ["SET", "  SET", "  GET"]);
    let widths: Vec<_> = rows.lines().map(str::len).collect();
    assert_eq!(widths, [widths[0]; 3], "{rows}");
}
