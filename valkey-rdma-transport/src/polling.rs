//! How a connection waits for its device.

use std::fmt;
use std::str::FromStr;

use crate::device::DeviceInfo;

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
    /// It is [off](AdaptiveOff) where spinning would take the CPU away from the work that is waited for.
    Adaptive,
}

/// Why [`Polling::Adaptive`] behaves as [`Polling::Event`] on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AdaptiveOff {
    /// This process has two CPUs or fewer: the peer, the kernel and the application need them.
    FewCpus {
        /// How many it has.
        cpus: usize,
    },
    /// The device is software: it runs on the CPUs that would look for its completions.
    SoftwareDevice,
}

impl AdaptiveOff {
    /// The reason that holds for this process on this device, if there is one.
    pub(crate) fn on(device: &DeviceInfo) -> Option<Self> {
        // If the number is unknown, too few is the harmless guess.
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        if device.software {
            Some(Self::SoftwareDevice)
        } else {
            (cpus <= FEW_CPUS).then_some(Self::FewCpus { cpus })
        }
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

impl fmt::Display for AdaptiveOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdaptiveOff::FewCpus { cpus } => write!(f, "adaptive polling is off: {cpus} CPUs are too few"),
            AdaptiveOff::SoftwareDevice => f.write_str("adaptive polling is off: the device is software"),
        }
    }
}

/// The text names no way to wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown polling mode {0:?}: use `event`, `busy` or `adaptive`")]
pub struct UnknownPolling(String);

impl FromStr for Polling {
    type Err = UnknownPolling;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "event" => Ok(Polling::Event),
            "busy" => Ok(Polling::Busy),
            "adaptive" => Ok(Polling::Adaptive),
            other => Err(UnknownPolling(other.to_owned())),
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
        assert_eq!(AdaptiveOff::on(&device(true)), Some(AdaptiveOff::SoftwareDevice));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let expected = (cpus <= 2).then_some(AdaptiveOff::FewCpus { cpus });
        assert_eq!(AdaptiveOff::on(&device(false)), expected);
    }
}
