use std::time::Duration;

use super::*;
use crate::faults::{Fault, FaultKind, Faults};
use crate::measure::Recorder;
use crate::result::Shape;
use crate::workload::Test;

fn run() -> RunInfo {
    RunInfo {
        target: "valkey://127.0.0.1:6379".to_owned(),
        transport: "tcp".to_owned(),
        link: "no device".to_owned(),
        shape: Shape {
            connections: 2,
            tasks_per_connection: 1,
            pipeline: 1,
            threads: 1,
            value_len: 3,
            keyspace: None,
        },
        connect_time: Duration::from_micros(1500),
    }
}

fn result(faults: Faults) -> TestResult {
    let recorder = Recorder::new(1);
    recorder.record(0, [Duration::from_millis(1); 10]);
    TestResult {
        test: Test::Set,
        elapsed: Duration::from_millis(5),
        latencies: recorder.snapshot(),
        faults,
        counters: None,
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn csv_starts_with_the_header_of_valkey_benchmark() {
    let head = written(|out| Format::Csv.write_head(out, &run()));
    let theirs = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"";
    let ours = ",\"p99_9_latency_ms\",\"replies\",\"errors\",\"transport\",\"connections\",\"tasks_per_connection\",\"pipeline\",\"threads\",\"data_bytes\",\"keyspace\",\"connect_ms\",\"work_requests_per_request\",";
    assert!(head.starts_with(theirs), "{head}");
    assert!(head[theirs.len()..].starts_with(ours), "{head}");
    assert_eq!(head.lines().count(), 1);
}

#[test]
fn csv_rows_have_as_many_cells_as_the_header() {
    let head = written(|out| Format::Csv.write_head(out, &run()));
    let row = written(|out| Format::Csv.write_test(out, &run(), &result(Faults::default())));
    assert_eq!(row.matches("\",\"").count(), head.matches("\",\"").count());
    assert!(row.starts_with("\"SET\",\"2000.00\",\"1.0"), "{row}");
}

#[test]
fn quiet_prints_the_line_of_valkey_benchmark() {
    let head = written(|out| Format::Quiet.write_head(out, &run()));
    let line = written(|out| Format::Quiet.write_test(out, &run(), &result(Faults::default())));
    assert_eq!(head, "");
    assert_eq!(line, "SET: 2000.00 requests per second, p50=1.000 msec\n");
}

#[test]
fn table_columns_are_aligned() {
    let format = Format::Table(Style::Plain);
    let head = written(|out| format.write_head(out, &run()));
    let row = written(|out| format.write_test(out, &run(), &result(Faults::default())));
    assert_eq!(head.lines().last().map(str::len), row.lines().last().map(str::len), "{head}{row}");
    assert!(!head.contains('\x1b'));
}

#[test]
fn faults_are_counted_by_kind_and_the_first_are_told() {
    let mut faults = Faults::default();
    let story = "GET key:000000000001: byte 2 is 0x41, not 0x42".to_owned();
    faults.add_many(Fault { kind: FaultKind::WrongBytes, story }, 7);
    let text = written(|out| write_faults(out, &result(faults), Style::Plain));
    assert_eq!(
        text,
        "error: SET: 7 wrong (wrong bytes 7)\n  wrong bytes: GET key:000000000001: byte 2 is 0x41, not 0x42\n  ... and 6 more\n"
    );
}
