//! How a connection waits for its device.

use std::fmt;
use std::str::FromStr;

use crate::device::{DeviceInfo, UnknownName};

/// How a connection waits for its device. No mode loses a wake-up, and in none does a connection keep other tasks
/// or timers of its runtime from running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Polling {
    /// Sleeps until the device raises an event. Costs two system calls per wake-up (to take the event, to ask for
    /// the next) and the time of an interrupt; costs nothing while nothing comes. The default.
    ///
    /// On a current-thread runtime, the tasks that were just woken run before the queue is armed again, so that their
    /// replies do not wait for the system call.
    #[default]
    Event,
    /// Busy-polls the completion queue and never sleeps. The lowest latency where each such connection has a CPU to
    /// itself; uses that CPU whether bytes flow or not.
    ///
    /// Between two polls the runtime runs every other task that is ready, and checks timers and sockets every 61
    /// polls (tokio's `event_interval`). Two such connections on one runtime thread alternate. Under tokio's paused
    /// test clock time stands still, because the runtime is never idle.
    Busy,
    /// Spins before sleeping, for 0 to [50 µs](crate::Config::spin_limit). The time grows when completions arrive
    /// shortly after going to sleep, and shrinks when they do not. Under load this saves system calls; idle, it costs
    /// nothing.
    ///
    /// It is off where spinning would take the CPU away from the work that is waited for: on software devices, and in processes with
    /// two CPUs or fewer. [`Info::adaptive_off`](crate::Info::adaptive_off) says so.
    Adaptive,
}

/// Why [`Polling::Adaptive`] behaves as [`Polling::Event`] on a device. `None`: it does not.
pub(crate) fn adaptive_off(device: &DeviceInfo) -> Option<&'static str> {
    // If the number is unknown, too few is the harmless guess.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if device.software {
        Some("adaptive polling is off: the device is software")
    } else if cpus <= FEW_CPUS {
        Some("adaptive polling is off: this process has two CPUs or fewer")
    } else {
        None
    }
}

/// Up to this number, no CPU is free for spinning.
const FEW_CPUS: usize = 2;

impl fmt::Display for Polling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Polling::Event => "event",
            Polling::Busy => "busy",
            Polling::Adaptive => "adaptive",
        })
    }
}

impl FromStr for Polling {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "event" => Ok(Polling::Event),
            "busy" => Ok(Polling::Busy),
            "adaptive" => Ok(Polling::Adaptive),
            other => Err(UnknownName::new("polling mode", other, "`event`, `busy` or `adaptive`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceKind;

    #[test]
    fn a_mode_is_what_its_name_says() {
        for mode in [Polling::Event, Polling::Busy, Polling::Adaptive] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "Busy".parse::<Polling>().expect_err("names are lower case");
        assert_eq!(error.to_string(), "unknown polling mode \"Busy\": use `event`, `busy` or `adaptive`");
    }

    #[test]
    fn adaptive_polling_is_off_where_the_device_is_software_or_cpus_are_few() {
        let device =
            |software| DeviceInfo { kind: DeviceKind::Verbs, name: "x".to_owned(), mtu: None, software };
        let reason = adaptive_off(&device(true)).expect("off");
        assert!(reason.contains("the device is software"), "{reason}");
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        match adaptive_off(&device(false)) {
            Some(reason) => assert!(cpus <= 2 && reason.contains("two CPUs or fewer"), "{cpus}: {reason}"),
            None => assert!(cpus > 2, "{cpus}"),
        }
    }
}
