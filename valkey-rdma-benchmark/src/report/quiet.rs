//! One line per test, in the words of `valkey-benchmark -q`.

use std::io::{self, Write};

use valkey_rdma_program::millis;

use crate::measure::TestResult;

pub(super) fn write_test(out: &mut dyn Write, result: &TestResult, precision: usize) -> io::Result<()> {
    let p50 = millis(result.latencies().quantile(0.5));
    writeln!(out, "{}: {:.2} requests per second, p50={p50:.precision$} msec", result.title, result.rate())
}
