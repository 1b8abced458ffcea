//! Counts of what the process and the machine's RDMA devices hold, and a table of such counts.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::process::Command;

use crate::outcome::{Outcome, bounded, ensure};

/// Counts by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Census {
    /// Exact: descriptors, threads and pinned memory of this process, objects of each kind of each device.
    objects: BTreeMap<String, u64>,
    /// Resident memory of the process, in KiB.
    resident: u64,
}

/// How much resident memory may stay with the allocator and the kernel's page tables, in KiB.
const RESIDENT_SLACK: u64 = 4096;

impl Census {
    /// Counts.
    pub(crate) async fn take() -> Outcome<Self> {
        let descriptors = std::fs::read_dir("/proc/self/fd")?.count() as u64;
        let status = std::fs::read_to_string("/proc/self/status")?;
        let number = |name: &str| -> Outcome<u64> {
            let line = status.lines().find(|line| line.starts_with(name));
            let number =
                line.and_then(|line| line.split_whitespace().nth(1)).and_then(|text| text.parse().ok());
            number.ok_or_else(|| format!("/proc/self/status has no {name}").into())
        };
        let mut objects = BTreeMap::from([
            ("descriptors".to_owned(), descriptors),
            ("threads".to_owned(), number("Threads:")?),
            ("pinned memory, KiB".to_owned(), number("VmPin:")?),
        ]);
        let output = Command::new("rdma").args(["resource", "show"]).output().await?;
        // One line per device: `0: rxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0`.
        for line in String::from_utf8(output.stdout)?.lines() {
            let words = line.split_whitespace().collect::<Vec<_>>();
            for pair in words.get(2..).unwrap_or_default().chunks_exact(2) {
                objects.insert(format!("{} {}", words[1].trim_end_matches(':'), pair[0]), pair[1].parse()?);
            }
        }
        ensure(objects.len() > 3, "`rdma resource show` lists no device")?;
        Ok(Self { objects, resident: number("VmRSS:")? })
    }

    /// Counts once nothing changes any more: what ended just before is then gone.
    pub(crate) async fn settled() -> Outcome<Self> {
        let counting = async {
            let (mut last, mut same) = (Self::take().await?, 0);
            while same < 5 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let next = Self::take().await?;
                same = if next.objects == last.objects { same + 1 } else { 0 };
                last = next;
            }
            Ok(last)
        };
        bounded("a count that does not change", counting).await?
    }

    /// The same without a device.
    pub(crate) fn without(mut self, device: &str) -> Self {
        self.objects.retain(|name, _| !name.starts_with(&format!("{device} ")));
        self
    }

    /// How many objects or descriptors of a kind there are.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.objects.get(name).copied().unwrap_or(0)
    }

    /// Waits until exactly the objects of `self` are there again: the kernel frees some a moment later.
    pub(crate) async fn objects_returned(&self) -> Outcome<Self> {
        let mut last = Self::take().await?;
        let returned = async {
            while last.objects != self.objects {
                tokio::time::sleep(Duration::from_millis(100)).await;
                last = Self::take().await?;
            }
            Ok(())
        };
        match bounded("the baseline", returned).await {
            Ok(counted) => counted.map(|()| last),
            Err(_) => Err(format!("not back at the baseline:\n{}", self.beside(&[("now", &last)])).into()),
        }
    }

    /// As [`objects_returned`](Self::objects_returned); and resident memory must not have grown.
    pub(crate) async fn returned(&self) -> Outcome<Self> {
        let last = self.objects_returned().await?;
        let grown = last.resident.saturating_sub(self.resident);
        ensure(grown <= RESIDENT_SLACK, format!("resident memory grew by {grown} KiB"))?;
        Ok(last)
    }

    /// A table: one row per count, one column per census, this one first.
    pub(crate) fn beside(&self, later: &[(&str, &Census)]) -> String {
        let columns = [("before", self)].into_iter().chain(later.iter().copied()).collect::<Vec<_>>();
        let mut names = columns.iter().flat_map(|(_, census)| census.objects.keys()).collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        let mut table = format!("   {:<24}", "");
        columns.iter().for_each(|(title, _)| table += &format!("{title:>12}"));
        let mut row = |name: &str, count: &dyn Fn(&Census) -> u64| {
            table += &format!("\n   {name:<24}");
            columns.iter().for_each(|(_, census)| table += &format!("{:>12}", count(census)));
        };
        for name in names {
            row(name, &|census| census.count(name));
        }
        row("resident memory, KiB", &|census| census.resident);
        table
    }
}
