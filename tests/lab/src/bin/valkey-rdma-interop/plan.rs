//! Which combinations are tried.

use crate::case::{Case, ClientKind, Load, ServerKind, ServerProgram, Shape, Test};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Up to the default window of both sides (1 MiB).
const VALUES: [usize; 3] = [3, 64 * KIB, MIB];
/// Larger than both windows.
const LARGE_VALUE: usize = 3 * MIB + MIB / 2;

/// Bytes of values in flight at once, in a brief run.
const MOST_IN_FLIGHT: usize = 200 * MIB;

const DEFAULT: Option<u32> = None;
/// Much smaller and much larger than what clients are used to.
const VALKEY_WINDOWS: [u32; 2] = [64 << 10, 16 << 20];
/// No multiple of anything: not of a page, not of a cache line, not of four.
const ODD_WINDOW: u32 = 100_001;

/// How values and shapes are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Each value in each shape.
    Every,
    /// Each value and each shape, with each server and each client; over the servers the pairs differ.
    Brief,
}

/// The cases; those with the same server stand together.
pub(crate) fn cases(extent: Extent) -> Vec<Case> {
    let mut plan = Plan { extent, server: None, servers: 0, cases: Vec::new() };
    // The reference with itself: if these fail, the lab is to blame.
    plan.on(ServerProgram::Valkey91, DEFAULT);
    plan.set_get(ClientKind::ValkeyCli, &VALUES, &[shape(1, 1, 1)]);
    plan.valkey_benchmark(&[shape(1, 1, 16), shape(50, 1, 1)]);

    for program in [ServerProgram::Valkey91, ServerProgram::Valkey81] {
        plan.on(program, DEFAULT);
        plan.ours_in_full();
        for window in VALKEY_WINDOWS {
            plan.on(program, Some(window));
            plan.ours(&[VALUES.as_slice(), &[LARGE_VALUE]].concat(), &SOME_SHAPES);
        }
    }

    plan.on(ServerProgram::Mock, DEFAULT);
    plan.valkey_cli();
    plan.valkey_benchmark(&[shape(1, 1, 1), shape(1, 1, 16), shape(50, 1, 1), shape(50, 1, 16)]);
    plan.ping();
    plan.ours(&[3, 64 * KIB], &ALL_SHAPES);
    plan.ours(&[MIB, LARGE_VALUE], &SOME_SHAPES);

    plan.on(ServerProgram::Mock, Some(ODD_WINDOW));
    plan.valkey_cli();
    plan.valkey_benchmark(&[shape(1, 1, 16), shape(50, 1, 1)]);
    plan.ours(&[VALUES.as_slice(), &[LARGE_VALUE]].concat(), &SOME_SHAPES);
    plan.cases
}

/// One and fifty connections, and fifty tasks on one connection; with and without a pipeline.
const ALL_SHAPES: [Shape; 6] =
    [shape(1, 1, 1), shape(1, 1, 16), shape(50, 1, 1), shape(50, 1, 16), shape(1, 50, 1), shape(1, 50, 16)];

/// Each of them crowded in one way: a pipeline, connections, tasks.
const SOME_SHAPES: [Shape; 3] = [shape(1, 1, 16), shape(50, 1, 1), shape(1, 50, 1)];

const fn shape(connections: usize, tasks: usize, pipeline: usize) -> Shape {
    Shape { connections, tasks, pipeline }
}

/// Collects cases for one server after the other.
struct Plan {
    extent: Extent,
    server: Option<ServerKind>,
    /// How many servers there were.
    servers: usize,
    cases: Vec<Case>,
}

impl Plan {
    fn on(&mut self, program: ServerProgram, rx_size: Option<u32>) {
        self.server = Some(ServerKind { program, rx_size });
        self.servers += 1;
    }

    fn ours_in_full(&mut self) {
        self.ping();
        self.ours(&[VALUES.as_slice(), &[LARGE_VALUE]].concat(), &ALL_SHAPES);
    }

    fn ping(&mut self) {
        for shape in ALL_SHAPES {
            self.add(ClientKind::Ours, Test::Ping, shape);
        }
    }

    fn ours(&mut self, values: &[usize], shapes: &[Shape]) {
        self.set_get(ClientKind::Ours, values, shapes);
    }

    fn valkey_benchmark(&mut self, shapes: &[Shape]) {
        self.set_get(ClientKind::ValkeyBenchmark, &VALUES, shapes);
    }

    /// It has no pipeline and one connection: eight connections are eight of it. Fifty at once are valkey-benchmark's on the same servers.
    fn valkey_cli(&mut self) {
        self.set_get(ClientKind::ValkeyCli, &VALUES, &[shape(1, 1, 1), shape(8, 1, 1)]);
    }

    fn set_get(&mut self, client: ClientKind, values: &[usize], shapes: &[Shape]) {
        for (value, shape) in self.pairs(values, shapes) {
            self.add(client, Test::SetGet(value), shape);
        }
    }

    fn pairs(&self, values: &[usize], shapes: &[Shape]) -> Vec<(usize, Shape)> {
        match self.extent {
            Extent::Every => {
                values.iter().flat_map(|&value| shapes.iter().map(move |&shape| (value, shape))).collect()
            }
            Extent::Brief => (0..values.len().max(shapes.len()))
                .map(|at| (values[at % values.len()], shapes[(at + self.servers) % shapes.len()]))
                .flat_map(|(value, shape)| light_pairs(value, shape, values, shapes))
                .collect(),
        }
    }

    fn add(&mut self, client: ClientKind, test: Test, shape: Shape) {
        let server = self.server.expect("a server is named before its cases");
        let requests = match client {
            ClientKind::ValkeyCli => shape.connections,
            // Whole rounds, so that every pipeline is full.
            _ => requests(test).next_multiple_of(shape.in_flight()),
        };
        self.cases.push(Case { server, client, load: Load { test, shape, requests } });
    }
}

/// The pair itself, or two in its place that move less: the shape with a smaller value, and the value in a less crowded shape.
/// Gigabytes take minutes here, and meet no other code than hundreds of megabytes.
fn light_pairs(value: usize, shape: Shape, values: &[usize], shapes: &[Shape]) -> Vec<(usize, Shape)> {
    let fits = |value: usize, shape: Shape| value * shape.in_flight() <= MOST_IN_FLIGHT;
    if fits(value, shape) {
        return vec![(value, shape)];
    }
    let smaller = values.iter().copied().filter(|&value| fits(value, shape)).max();
    let fewer =
        shapes.iter().copied().filter(|&shape| fits(value, shape)).max_by_key(|shape| shape.in_flight());
    smaller.map(|value| (value, shape)).into_iter().chain(fewer.map(|shape| (value, shape))).collect()
}

/// Enough to go around a window many times, few enough for an emulated processor.
fn requests(test: Test) -> usize {
    match test {
        Test::Ping | Test::SetGet(..1024) => 1_000,
        Test::SetGet(..MIB) => 200,
        Test::SetGet(MIB..) => 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_with_real_servers_is_there_once() {
        let cases = cases(Extent::Every);
        for program in [ServerProgram::Valkey91, ServerProgram::Valkey81] {
            let server = ServerKind { program, rx_size: DEFAULT };
            let tests = [Test::Ping].into_iter().chain([3, 65_536, 1_048_576, 3_670_016].map(Test::SetGet));
            for test in tests {
                for shape in ALL_SHAPES {
                    let same = |case: &&Case| {
                        case.server == server
                            && case.client == ClientKind::Ours
                            && case.load.test == test
                            && case.load.shape == shape
                    };
                    assert_eq!(cases.iter().filter(same).count(), 1, "{program} {test:?} {shape:?}");
                }
            }
        }
    }

    #[test]
    fn briefly_no_value_and_no_shape_is_left_out_with_any_server() {
        let (every, brief) = (cases(Extent::Every), cases(Extent::Brief));
        assert!(brief.len() * 2 < every.len(), "{} of {}", brief.len(), every.len());
        for case in &every {
            let like = |other: &&Case| other.server == case.server && other.client == case.client;
            assert!(brief.iter().filter(like).any(|other| other.load.test == case.load.test), "{case}");
            assert!(brief.iter().filter(like).any(|other| other.load.shape == case.load.shape), "{case}");
        }
        assert!(brief.iter().all(|case| every.contains(case)));
    }

    #[test]
    fn every_pipeline_is_filled() {
        for case in cases(Extent::Every) {
            assert!(case.load.requests.is_multiple_of(case.load.shape.in_flight()), "{case}");
        }
    }

    #[test]
    fn cases_with_the_same_server_stand_together() {
        let cases = cases(Extent::Every);
        let mut seen: Vec<ServerKind> = Vec::new();
        for group in cases.chunk_by(|one, other| one.server == other.server) {
            assert!(!seen.contains(&group[0].server));
            seen.push(group[0].server);
        }
    }
}
