//! The cells of `--evidence`: what is measured over RDMA and TCP of one server, and the published figure that it answers to.

use std::num::NonZeroU64;
use std::time::Duration;

use valkey_rdma_transport::Config as TransportConfig;

use super::Plan;
use crate::drive::{Choice, Limit, Verify};
use crate::measure::{Published, Shape};
use crate::workload::{DefaultTest, Distribution, Keys, Sizes, TestOptions, Values, tests_from_list};

/// How values move over RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// In the stream, through the ring of its window.
    Ring,
    /// By direct transfers.
    Direct,
}

/// One cell. Each runs SET, then GET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Its name, for `--cells`.
    pub(crate) name: &'static str,
    connections: usize,
    /// Tasks on each connection, through the client library; `None`: driven directly, as by valkey-benchmark.
    tasks: Option<usize>,
    /// Bytes of each value.
    len: u64,
    pub(crate) way: Way,
    /// Whether GET is measured at a fixed rate, too.
    pub(crate) at_a_rate: bool,
    pub(crate) published: Option<Published>,
}

/// The names of the keys begin with this, so that no other keys are overwritten.
pub(crate) const PREFIX: &str = "evidence:";
/// Load threads of a cell, where it has as many connections and the machine as many processors.
const THREADS: usize = 8;
/// Keys of a cell, and the bytes that they may have together, unless one has more.
const KEYS: (u64, u64) = (1000, 32 << 20);
/// The seed of the keys, so that each run draws the same.
const SEED: u64 = 1;
/// What opening connections, writing keys and asking the server takes beside the tests, on a fast network.
const OVERHEAD: Duration = Duration::from_millis(500);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// redis#9161, with redis-benchmark.
const REDIS_9161: Published = Published {
    figures: "ConnectX-5, 8 threads, requests/s over TCP and RDMA: PING 159 k and 524 k, SET 155 k and 492 k",
    source: "github.com/redis/redis/pull/9161",
};
const TSOR: Published = Published {
    figures: "ConnectX-6 Dx, SET: 42 k requests/s over RDMA, p95 23 us, 2.3 times the host's TCP",
    source: "arxiv.org/abs/2305.10621",
};
/// An echo, not Valkey.
const RUST_RDMA_IO: Published = Published {
    figures: "Azure MANA, echo, TCP and RDMA: 299 k/s at 12 us of CPU, 357 k/s at 9.1 us",
    source: "github.com/youyuanwu/rust-rdma-io, docs/benchv3/results",
};
const RUST_RDMA_IO_64: Published = Published {
    figures: "Azure MANA, echo, TCP and RDMA: 6.29 M/s at 5.73 us of CPU, 4.53 M/s at 1.39 us",
    source: "github.com/youyuanwu/rust-rdma-io, docs/benchv3/results",
};
const VALKEY_3492: Published = Published {
    figures: "adapter not stated: 7.2 k requests/s over RDMA, p50 0.127 ms",
    source: "github.com/valkey-io/valkey/issues/3492",
};

/// A cell of small values.
const fn cell(name: &'static str, connections: usize, tasks: Option<usize>, len: u64) -> Cell {
    Cell { name, connections, tasks, len, way: Way::Ring, at_a_rate: false, published: None }
}

/// A cell of large values. Both ways go through the client library, so that they differ in the way alone.
const fn large(name: &'static str, connections: usize, len: u64, way: Way) -> Cell {
    Cell { way, ..cell(name, connections, Some(1), len) }
}

impl Cell {
    const fn at_a_rate(self) -> Cell {
        Cell { at_a_rate: true, ..self }
    }

    const fn published(self, published: Published) -> Cell {
        Cell { published: Some(published), ..self }
    }
}

/// All cells, in the order in which they are measured.
pub(crate) const CELLS: [Cell; 27] = [
    cell("c30-512B", 30, None, 512).at_a_rate().published(REDIS_9161),
    cell("c1-3B", 1, None, 3).published(TSOR),
    cell("c1-t1-64B", 1, Some(1), 64),
    cell("c1-t16-64B", 1, Some(16), 64),
    cell("c1-t64-64B", 1, Some(64), 64).at_a_rate(),
    cell("c1-t256-64B", 1, Some(256), 64),
    cell("c1-t1-8K", 1, Some(1), 8 * KIB),
    cell("c1-t16-8K", 1, Some(16), 8 * KIB),
    cell("c1-t64-8K", 1, Some(64), 8 * KIB).at_a_rate(),
    cell("c1-t256-8K", 1, Some(256), 8 * KIB),
    cell("c64-t1-64B", 64, Some(1), 64).published(RUST_RDMA_IO),
    cell("c64-t64-64B", 64, Some(64), 64).at_a_rate().published(RUST_RDMA_IO_64),
    cell("c64-t1-8K", 64, Some(1), 8 * KIB),
    cell("c64-t64-8K", 64, Some(64), 8 * KIB),
    cell("c1-100K", 1, None, 100 * KIB).published(VALKEY_3492),
    large("c1-64K", 1, 64 * KIB, Way::Ring),
    large("c1-64K-direct", 1, 64 * KIB, Way::Direct),
    large("c32-64K", 32, 64 * KIB, Way::Ring).at_a_rate(),
    large("c32-64K-direct", 32, 64 * KIB, Way::Direct).at_a_rate(),
    large("c1-1M", 1, MIB, Way::Ring),
    large("c1-1M-direct", 1, MIB, Way::Direct),
    large("c32-1M", 32, MIB, Way::Ring).at_a_rate(),
    large("c32-1M-direct", 32, MIB, Way::Direct).at_a_rate(),
    large("c1-32M", 1, 32 * MIB, Way::Ring),
    large("c1-32M-direct", 1, 32 * MIB, Way::Direct),
    large("c32-32M", 32, 32 * MIB, Way::Ring),
    large("c32-32M-direct", 32, 32 * MIB, Way::Direct),
];

impl Way {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Ring => "ring",
            Way::Direct => "direct",
        }
    }
}

impl Cell {
    /// What both sides do. On a machine with `cpus` processors, each turn ends at `turn`. A side without direct transfers uses the stream.
    pub(crate) fn plan(&self, way: Way, cpus: usize, turn: Duration) -> Plan {
        let keys = Keys::random(NonZeroU64::new(self.keys()), SEED, Distribution::Uniform);
        let sizes = Sizes::fixed(self.len);
        let shape = Shape {
            connections: self.connections,
            tasks_per_connection: self.tasks,
            library: (way == Way::Direct).then(|| Choice::direct(sizes.longest(), Verify::Length)),
            pipeline: 1,
            threads: THREADS.min(cpus).min(self.connections),
            runtime_threads: 1,
            sizes: sizes.to_string(),
            keyspace: NonZeroU64::new(self.keys()),
            key_order: keys.order_text(),
            seed: keys.random_seed(),
        };
        let options = TestOptions { prefix: PREFIX.to_owned(), ..TestOptions::default() };
        let scripts = Cell::tests().iter().map(|test| test.script(&keys, &options)).collect();
        Plan {
            verify: Verify::Length,
            prefix: PREFIX.to_owned(),
            values: Values::new(sizes.clone(), keys.count(), false),
            keys,
            // A cell that the server refuses must not take its time.
            fail_fast: true,
            ..Plan::of(shape, scripts, sizes, Limit::Time(turn))
        }
    }

    fn tests() -> Vec<DefaultTest> {
        tests_from_list("set,get").unwrap_or_default()
    }

    /// Comparisons that it consists of.
    pub(crate) fn comparisons(&self) -> u32 {
        2 + u32::from(self.at_a_rate)
    }

    /// About how long it takes with this number of rounds. One more round warms up.
    pub(crate) fn time(&self, rounds: u32, turn: Duration) -> Duration {
        OVERHEAD + 2 * (rounds + 1) * self.comparisons() * turn
    }

    /// How many keys it has.
    fn keys(&self) -> u64 {
        (KEYS.1 / self.len).clamp(1, KEYS.0)
    }

    /// Bytes of values that are in flight at once, at most.
    fn in_flight(&self) -> u64 {
        self.connections as u64 * self.tasks.unwrap_or(1) as u64 * self.len
    }

    /// Bytes that this process pins.
    pub(crate) fn pinned(&self, config: &TransportConfig) -> u64 {
        let direct = if self.way == Way::Direct { self.in_flight() } else { 0 };
        self.connections as u64 * config.pinned_bytes() + direct
    }
}

/// Bytes that the keys of all `cells` have at the server: those of different cells have the same names, and each cell
/// overwrites those before.
pub(crate) fn keyspace_bytes(cells: &[Cell]) -> u64 {
    let longest = |key| cells.iter().filter(|cell| cell.keys() > key).map(|cell| cell.len).max();
    (0..KEYS.0).filter_map(longest).sum()
}

/// Bytes of values that a server may hold in its buffers at once, and the cell in which it may.
pub(crate) fn most_in_flight(cells: &[Cell]) -> Option<(u64, &'static str)> {
    cells.iter().map(|cell| (cell.in_flight(), cell.name)).max_by_key(|(bytes, _)| *bytes)
}

/// Cells from their names, separated by commas, in the order of [`CELLS`].
pub(crate) fn cells_from_list(list: &str) -> Result<Vec<Cell>, String> {
    let names: Vec<&str> = list.split(',').collect();
    if let Some(unknown) = names.iter().find(|name| CELLS.iter().all(|cell| cell.name != **name)) {
        let known: Vec<&str> = CELLS.iter().map(|cell| cell.name).collect();
        return Err(format!("unknown cell {unknown:?}; there are {}", known.join(", ")));
    }
    Ok(CELLS.into_iter().filter(|cell| names.contains(&cell.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_cells_say_what_they_are() {
        for cell in CELLS {
            let tasks = cell
                .tasks
                .filter(|_| cell.len < 64 * KIB)
                .map_or(String::new(), |tasks| format!("-t{tasks}"));
            let len = match cell.len {
                MIB.. => format!("{}M", cell.len / MIB),
                KIB.. => format!("{}K", cell.len / KIB),
                len => format!("{len}B"),
            };
            let way = if cell.way == Way::Direct { "-direct" } else { "" };
            assert_eq!(cell.name, format!("c{}{tasks}-{len}{way}", cell.connections));
        }
    }

    #[test]
    fn memory_is_that_of_the_longest_values() {
        let of = |list: &str| cells_from_list(list).unwrap();
        assert_eq!(keyspace_bytes(&of("c1-3B")), 3000);
        assert_eq!(keyspace_bytes(&of("c1-3B,c1-32M")), 32 * MIB + 999 * 3);
        assert!(keyspace_bytes(&CELLS) < 128 * MIB, "{}", keyspace_bytes(&CELLS));
        assert_eq!(most_in_flight(&CELLS).unwrap().0, 32 * 32 * MIB);
        let config = TransportConfig::default();
        assert_eq!(of("c1-32M")[0].pinned(&config), config.pinned_bytes());
        assert_eq!(of("c1-32M-direct")[0].pinned(&config), config.pinned_bytes() + 32 * MIB);
    }

    #[test]
    fn cells_are_chosen_by_name_and_keep_their_order() {
        let names: Vec<_> = cells_from_list("c1-3B,c30-512B").unwrap().iter().map(|cell| cell.name).collect();
        assert_eq!(names, ["c30-512B", "c1-3B"]);
        assert!(
            cells_from_list("c1-3B,c9").unwrap_err().contains("unknown cell \"c9\"; there are c30-512B, ")
        );
    }
}
