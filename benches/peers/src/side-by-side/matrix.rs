//! What is measured: one row a workload, several programs a row, ours first.

use std::fmt;

use crate::contender::{Contender, Library, Perftest, ServerKind, Transport};
use crate::place::Place;
use crate::sample::Figure;

/// One workload.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) requests: u64,
    pub(crate) value_len: u32,
    /// Ours first: the others are compared with it.
    pub(crate) contenders: Vec<Contender>,
    /// The aims, in the order of the report.
    pub(crate) targets: Vec<Target>,
}

/// A ratio that we want to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Which contender it is against, by place in the row.
    pub(crate) against: usize,
    pub(crate) figure: Figure,
    pub(crate) bound: Bound,
}

/// On which side of a ratio we want to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Row {
    fn new(name: impl Into<String>, requests: u64, value_len: u32, contenders: Vec<Contender>) -> Self {
        Self { name: name.into(), requests, value_len, contenders, targets: Vec::new() }
    }

    fn want(mut self, against: usize, figure: Figure, bound: Bound) -> Self {
        self.targets.push(Target { against, figure, bound });
        self
    }

    /// The same with more or fewer requests.
    pub(crate) fn scaled(mut self, percent: u32) -> Self {
        self.requests = (self.requests * u64::from(percent) / 100).max(1);
        self
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} requests of {} B", self.name, self.requests, self.value_len)
    }
}

/// All rows of a place.
pub(crate) fn rows(place: Place) -> Vec<Row> {
    match place {
        Place::Lab => lab(),
        Place::Host => host(),
    }
}

fn lab() -> Vec<Row> {
    use Bound::{AtLeast, AtMost};
    use Figure::{ClientCpu, P50, P99, Rate, ServerCpu};
    use Transport::{Rdma, Tcp};
    let mut rows = Vec::new();
    for test in ["set", "get"] {
        rows.push(
            Row::new(
                format!("{test}, 50 callers"),
                40_000,
                3,
                vec![
                    Contender::ours(Rdma, test, 1, 50, 1),
                    Contender::valkey_benchmark(Rdma, test, 50, 1),
                    Contender::valkey_benchmark(Tcp, test, 50, 1),
                    Contender::library(Library::RedisRs, Tcp, test, 50, 1),
                ],
            )
            .want(1, Rate, AtLeast(4.0))
            .want(2, Rate, AtLeast(2.0))
            .want(3, Rate, AtLeast(1.5))
            .want(1, ClientCpu, AtMost(0.25)),
        );
        rows.push(
            Row::new(
                format!("{test}, 50 callers on a runtime of 2 threads"),
                30_000,
                3,
                vec![
                    Contender::library(Library::Ours, Rdma, test, 50, 2),
                    Contender::library(Library::RedisRs, Tcp, test, 50, 2),
                ],
            )
            .want(1, Rate, AtLeast(1.5)),
        );
        rows.push(
            Row::new(
                format!("{test}, 50 connections"),
                20_000,
                3,
                vec![
                    Contender::our_streams(Rdma, test, 50, 1),
                    Contender::valkey_benchmark(Rdma, test, 50, 1),
                ],
            )
            .want(1, Rate, AtLeast(1.3))
            .want(1, P99, AtMost(0.8)),
        );
        for (pipeline, name, requests) in [(1, "1 caller", 10_000), (16, "1 caller, pipelines of 16", 80_000)]
        {
            let row = Row::new(
                format!("{test}, {name}"),
                requests,
                3,
                vec![
                    Contender::ours(Rdma, test, 1, 1, pipeline),
                    Contender::our_streams(Rdma, test, 1, pipeline),
                    Contender::valkey_benchmark(Rdma, test, 1, pipeline),
                ],
            );
            // A reply at a time, the rate is what a caller waits for; valkey-benchmark's latencies leave out its own part.
            let row = if pipeline == 1 {
                row.want(2, Rate, AtLeast(1.0 / 0.9)).want(2, P50, AtMost(0.9))
            } else {
                row.want(2, Rate, AtLeast(1.3))
            };
            rows.push(row.want(2, ClientCpu, AtMost(0.5)));
        }
        // There are two processors: the server sleeps on one while the client looks on the other.
        rows.push(
            Row::new(
                format!("{test}, 1 caller that busy-polls"),
                10_000,
                3,
                vec![
                    Contender::ours(Rdma, test, 1, 1, 1).busy_polling(),
                    Contender::our_streams(Rdma, test, 1, 1).busy_polling(),
                    Contender::valkey_benchmark(Rdma, test, 1, 1),
                ],
            )
            .want(2, P50, AtMost(0.75)),
        );
        rows.push(
            Row::new(
                format!("{test}, 50 callers, pipelines of 16"),
                160_000,
                3,
                vec![Contender::ours(Rdma, test, 1, 50, 16), Contender::valkey_benchmark(Rdma, test, 50, 16)],
            )
            .want(1, Rate, AtLeast(1.0))
            .want(1, ClientCpu, AtMost(0.3)),
        );
        for (callers, len, requests) in [(1, 65_536, 2_000), (4, 65_536, 2_000), (1, 1 << 20, 200)] {
            let callers_are = if callers == 1 { "caller" } else { "callers" };
            let ours = Contender::ours(Rdma, test, 1, callers, 1);
            let mut contenders = vec![
                ours.clone(),
                Contender::perftest(Perftest::WriteBandwidth, len),
                Contender::valkey_benchmark(Rdma, test, callers, 1),
            ];
            // What is sent need not be copied. What is received is, in any case: out of the window.
            if test == "set" {
                contenders.push(ours.with_a_pool());
            }
            rows.push(
                Row::new(
                    format!("{test}, {callers} {callers_are}, {} KiB values", len / 1024),
                    requests,
                    len,
                    contenders,
                )
                .want(1, Rate, AtLeast(0.85)),
            );
        }
    }
    rows.push(
        Row::new(
            "get, 50 reference clients, our server",
            20_000,
            3,
            vec![
                Contender::valkey_benchmark(Rdma, "get", 50, 1).at(ServerKind::Mock),
                Contender::valkey_benchmark(Rdma, "get", 50, 1),
            ],
        )
        .want(1, ServerCpu, AtMost(0.6)),
    );
    // The link itself, where a round trip is two messages of 64 B and both sides poll.
    let round_trip = Contender::ours(Rdma, "get", 1, 1, 1).busy_polling().at(ServerKind::BusyMock);
    let of_streams = Contender::our_streams(Rdma, "get", 1, 1).busy_polling().at(ServerKind::BusyMock);
    rows.push(
        Row::new(
            "get, 1 caller, both sides busy",
            5_000,
            3,
            vec![
                round_trip,
                of_streams,
                Contender::perftest(Perftest::WriteLatency, 64),
                Contender::perftest(Perftest::SendLatency, 64),
            ],
        )
        .want(2, P50, AtMost(2.0)),
    );
    rows
}

fn host() -> Vec<Row> {
    use Transport::{Emulated, Tcp};
    let mut rows = Vec::new();
    for test in ["set", "get"] {
        rows.push(Row::new(
            format!("{test}, 50 callers over TCP"),
            400_000,
            3,
            vec![
                Contender::ours(Tcp, test, 1, 50, 1),
                Contender::valkey_benchmark(Tcp, test, 50, 1),
                Contender::library(Library::RedisRs, Tcp, test, 50, 1),
            ],
        ));
        rows.push(Row::new(
            format!("{test}, 50 callers over TCP on a runtime of 2 threads"),
            400_000,
            3,
            vec![
                Contender::library(Library::Ours, Tcp, test, 50, 2),
                Contender::library(Library::RedisRs, Tcp, test, 50, 2),
            ],
        ));
        rows.push(Row::new(
            format!("{test}, 50 connections over TCP"),
            200_000,
            3,
            vec![Contender::our_streams(Tcp, test, 50, 1), Contender::valkey_benchmark(Tcp, test, 50, 1)],
        ));
        rows.push(Row::new(
            format!("{test}, 50 callers, our server"),
            400_000,
            3,
            vec![
                Contender::ours(Emulated, test, 1, 50, 1).at(ServerKind::Mock),
                Contender::ours(Tcp, test, 1, 50, 1).at(ServerKind::Mock),
            ],
        ));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_against_another_program_of_its_row() {
        for row in rows(Place::Lab).iter().chain(&rows(Place::Host)) {
            for target in &row.targets {
                assert!((1..row.contenders.len()).contains(&target.against), "{row}");
            }
        }
    }

    #[test]
    fn no_two_rows_share_a_name() {
        for place in [Place::Lab, Place::Host] {
            let mut names: Vec<String> = rows(place).into_iter().map(|row| row.name).collect();
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }
}
