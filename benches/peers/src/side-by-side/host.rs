//! The machine: processor time of processes, and a description.

use std::fs;

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde::Serialize;

/// The machine, for the record.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Environment {
    kernel: String,
    processors: usize,
    processor: String,
    devices: Vec<String>,
}

impl Environment {
    pub(crate) fn read() -> Self {
        let word = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let processor = word("/proc/cpuinfo")
            .lines()
            .find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned()))
            .unwrap_or_default();
        let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
        Self {
            kernel: word("/proc/sys/kernel/osrelease"),
            // As many as may be used: fewer than there are with `--one-cpu`.
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            processor,
            devices: devices.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect(),
        }
    }

    /// In one line, for people.
    pub(crate) fn summary(&self) -> String {
        let devices = if self.devices.is_empty() { "none".to_owned() } else { self.devices.join(", ") };
        format!("{} x {}, kernel {}, RDMA devices: {devices}", self.processors, self.processor, self.kernel)
    }
}

/// Keeps this process and all it starts from now on to the processor it runs on.
pub(crate) fn stay_on_one_processor() -> Result<(), String> {
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    sched_setaffinity(None, &one).map_err(|error| format!("cannot stay on one processor: {error}"))
}

/// Processor time, user and system, of a process that runs, in seconds.
pub(crate) fn cpu_of(pid: u32) -> f64 {
    times(&pid.to_string(), 11)
}

/// Processor time, user and system, of all our children that have ended, in seconds.
pub(crate) fn cpu_of_ended_children() -> f64 {
    times("self", 13)
}

/// Two neighbouring fields of `/proc/PID/stat`, in seconds; `first` counts from the field after the name.
fn times(pid: &str, first: usize) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    ticks(&stat, first) as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The sum of two neighbouring fields of a line of `/proc/PID/stat` (proc_pid_stat(5)). The process's name stands in
/// brackets and may hold spaces and brackets itself.
fn ticks(stat: &str, first: usize) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(first).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_found_behind_any_name() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 200 3 4 11 22 33 44 20 0 1 0 500 1000 10";
        assert_eq!((ticks(stat, 11), ticks(stat, 13)), (11 + 22, 33 + 44));
        assert_eq!(ticks("", 11), 0, "a process that has ended");
    }
}
