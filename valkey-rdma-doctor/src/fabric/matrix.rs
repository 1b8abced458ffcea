//! What came of a mesh: a link for each pair, and the matrix for people.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use valkey_rdma_program::{median, printable};

use super::size::size_text;

/// Messages whose latency is in the matrix.
pub(super) const SMALL: u32 = 64;
/// Messages whose rate is in the matrix.
pub(super) const LARGE: u32 = 1 << 20;

/// What came of the check of one pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    /// The later node in the list, which connected.
    pub from: usize,
    /// The earlier one.
    pub to: usize,
    /// The median latency of WRITE with immediate, 64 bytes, in nanoseconds.
    pub latency: Option<u64>,
    /// Bytes per second in WRITEs of 1 MiB.
    pub rate: Option<f64>,
    /// What did not match.
    pub differences: Vec<String>,
    /// The error that ended the check early.
    pub error: Option<String>,
}

/// What came of all pairs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Matrix {
    /// The nodes.
    pub nodes: Vec<SocketAddr>,
    /// The pairs.
    pub links: Vec<Link>,
}

impl Link {
    /// Whether the pair was checked to the end, and everything matched.
    pub fn works(&self) -> bool {
        self.error.is_none() && self.differences.is_empty()
    }
}

impl Matrix {
    /// No pair of these nodes is checked yet.
    pub fn new(nodes: Vec<SocketAddr>) -> Self {
        Self { nodes, links: Vec::new() }
    }

    /// How many pairs there are.
    pub(super) fn pairs(&self) -> usize {
        self.nodes.len() * self.nodes.len().saturating_sub(1) / 2
    }

    /// Whether all pairs were checked, and work.
    pub fn works(&self) -> bool {
        self.links.len() == self.pairs() && self.links.iter().all(Link::works)
    }

    /// What a link is slower at than the others: its latency is more than twice the median, or its rate less than half of it.
    pub fn slow(&self, link: &Link) -> Option<String> {
        let slow: Vec<String> =
            [self.slow_latency(link), self.slow_rate(link)].into_iter().flatten().collect();
        (!slow.is_empty()).then(|| slow.join("; "))
    }

    fn slow_latency(&self, link: &Link) -> Option<String> {
        let us = |link: &Link| link.latency.map(|ns| ns as f64 / 1e3);
        let (own, median) = (us(link)?, median(self.links.iter().filter_map(us))?);
        (own > 2.0 * median).then(|| format!("latency {own:.1} us, median {median:.1} us"))
    }

    fn slow_rate(&self, link: &Link) -> Option<String> {
        let mib = |link: &Link| link.rate.map(|rate| rate / 1048576.0);
        let (own, median) = (mib(link)?, median(self.links.iter().filter_map(mib))?);
        (own < median / 2.0).then(|| format!("{own:.0} MiB/s, median {median:.0} MiB/s"))
    }

    /// The matrix for people: latencies below the diagonal, rates above it, then what is wrong or slow.
    pub fn text(&self) -> String {
        use std::fmt::Write as _;
        let count = self.nodes.len();
        let cell = |row: usize, column: usize| -> String {
            let Some(link) =
                self.links.iter().find(|link| (link.from, link.to) == (row.max(column), row.min(column)))
            else {
                return "-".to_owned();
            };
            let mark = |slow: Option<String>| if slow.is_some() { "!" } else { "" };
            match (row.cmp(&column), link.works()) {
                (std::cmp::Ordering::Equal, _) => "-".to_owned(),
                (_, false) => "FAILED".to_owned(),
                (std::cmp::Ordering::Greater, _) => link.latency.map_or("?".to_owned(), |ns| {
                    format!("{:.1} us{}", ns as f64 / 1e3, mark(self.slow_latency(link)))
                }),
                (std::cmp::Ordering::Less, _) => link.rate.map_or("?".to_owned(), |rate| {
                    format!("{:.0} MiB/s{}", rate / 1048576.0, mark(self.slow_rate(link)))
                }),
            }
        };
        let mut out = format!(
            "Median latency of WRITE with immediate, {} (lower left); rate of WRITEs of {} (upper right).\n\n",
            size_text(SMALL),
            size_text(LARGE)
        );
        let _ = write!(out, "{:3}  {:22}", "", "");
        for column in 0..count {
            let _ = write!(out, "{column:>12}");
        }
        out.push('\n');
        for row in 0..count {
            let _ = write!(out, "{row:3}  {:22}", self.nodes[row].to_string());
            for column in 0..count {
                let _ = write!(out, "{:>12}", cell(row, column));
            }
            out.push('\n');
        }
        out.push('\n');
        for link in &self.links {
            let names = format!("{} and {}", self.nodes[link.from], self.nodes[link.to]);
            if let Some(error) = &link.error {
                let _ = writeln!(out, "FAILED  {names}: {}", printable(error));
            }
            for difference in &link.differences {
                let _ = writeln!(out, "FAILED  {names}: {difference}");
            }
            if let Some(slow) = self.slow(link) {
                let _ = writeln!(out, "slow    {names}: {slow}");
            }
        }
        let working = self.links.iter().filter(|link| link.works()).count();
        let _ = writeln!(out, "{working} of {} pairs work.", self.pairs());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(from: usize, to: usize, us: f64, mib: f64) -> Link {
        let (latency, rate) = (Some((us * 1e3) as u64), Some(mib * 1048576.0));
        Link { from, to, latency, rate, differences: vec![], error: None }
    }

    #[test]
    fn a_slow_link_and_a_missing_one_stand_out() {
        let nodes = ["10.0.0.1:7", "10.0.0.2:7", "10.0.0.3:7", "10.0.0.4:7"]
            .map(|addr| addr.parse().expect("an address"));
        let gone = |from| Link {
            latency: None,
            rate: None,
            error: Some("10.0.0.4:7 is not there".into()),
            ..link(3, from, 0.0, 0.0)
        };
        let links = vec![
            link(1, 0, 2.0, 900.0),
            link(2, 0, 2.1, 910.0),
            link(2, 1, 9.0, 90.0),
            gone(0),
            gone(1),
            gone(2),
        ];
        let matrix = Matrix { nodes: nodes.to_vec(), links };
        assert!(!matrix.works());
        let expected = "\
Median latency of WRITE with immediate, 64 B (lower left); rate of WRITEs of 1 MiB (upper right).

                                      0           1           2           3
  0  10.0.0.1:7                       -   900 MiB/s   910 MiB/s      FAILED
  1  10.0.0.2:7                  2.0 us           -   90 MiB/s!      FAILED
  2  10.0.0.3:7                  2.1 us     9.0 us!           -      FAILED
  3  10.0.0.4:7                  FAILED      FAILED      FAILED           -

slow    10.0.0.3:7 and 10.0.0.2:7: latency 9.0 us, median 2.1 us; 90 MiB/s, median 900 MiB/s
FAILED  10.0.0.4:7 and 10.0.0.1:7: 10.0.0.4:7 is not there
FAILED  10.0.0.4:7 and 10.0.0.2:7: 10.0.0.4:7 is not there
FAILED  10.0.0.4:7 and 10.0.0.3:7: 10.0.0.4:7 is not there
3 of 6 pairs work.
";
        assert_eq!(matrix.text(), expected);
    }
}
