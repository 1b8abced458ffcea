//! What the machine tells: processor time of processes, and what it is.

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
///
/// # Errors
/// The story, if the system refuses.
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

/// Two neighbouring fields of `/proc/PID/stat`, in seconds (proc_pid_stat(5)); `first` counts from the field after
/// the name, which may hold spaces.
fn times(pid: &str, first: usize) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(first).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_processor_time() {
        let mut sum = 0_u64;
        while cpu_of(std::process::id()) == 0.0 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
    }
}
