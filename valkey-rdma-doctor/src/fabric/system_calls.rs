//! System calls of this process, as the kernel counts them.
//!
//! The kernel's tracepoint `raw_syscalls/sys_enter`, read through a performance counter: exact, without stopping the process at
//! each call as `strace` does. `/proc/PID/io` counts only calls that read or write.

use std::fs;
use std::sync::{Mutex, OnceLock, PoisonError};

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};

/// The counter of this process, once it counts.
static COUNTER: OnceLock<Mutex<Counter>> = OnceLock::new();

/// Where tracefs is mounted: today's place, and the older one.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Counts the system calls of the calling thread and of all that it starts from now on, for
/// [`Side::system_calls`](super::Side::system_calls). Call it before the first thread is started.
///
/// While any process has this open, each system call of the whole machine takes some tenths of a microsecond longer.
///
/// # Errors
/// A text for people: the machine lacks the tracepoint, or this process may not use it.
pub fn count_system_calls() -> Result<(), String> {
    let id = MOUNTS
        .iter()
        .find_map(|mount| fs::read_to_string(format!("{mount}/events/raw_syscalls/sys_enter/id")).ok());
    let id = id.and_then(|id| id.trim().parse().ok());
    let id = id.ok_or(
        "no tracepoint: this takes root, and tracefs (`mount -t tracefs tracefs /sys/kernel/tracing`)",
    )?;
    let mut builder = Builder::new(Tracepoint::with_id(id));
    let counter = builder.observe_self().any_cpu().inherit(true).exclude_kernel(false).enabled(true).build();
    let counter =
        counter.map_err(|error| format!("perf_event_open: {error}; this takes root or CAP_PERFMON"))?;
    // A second call changes nothing.
    let _ = COUNTER.set(Mutex::new(counter));
    Ok(())
}

/// How many there were. `None`: they are not counted.
pub(super) fn system_calls() -> Option<u64> {
    let mut counter = COUNTER.get()?.lock().unwrap_or_else(PoisonError::into_inner);
    counter.read().ok()
}
