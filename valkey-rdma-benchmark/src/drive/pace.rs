//! When requests begin: as soon as a connection is free, or on a schedule.

use std::io;
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;

use crate::workload::{mix, unit};

/// When requests begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// When the reply to the one before has come: closed loop.
    Closed,
    /// At intended times, whether or not the server keeps up: open loop.
    Open {
        /// Commands per second, over all threads.
        rate: f64,
        /// How the intended times lie.
        arrivals: Arrivals,
    },
}

/// How intended times lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arrivals {
    /// At equal distances.
    Constant,
    /// At random, as independent users come: distances are exponential.
    Poisson,
}

/// A thread's part of a schedule. Times are since the start of the job.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Distance of two arrivals in seconds, if constant; their mean if not.
    distance: f64,
    arrivals: Arrivals,
    /// The next arrival of this thread, in seconds.
    next: f64,
    drawn: u64,
    seed: u64,
    /// Made when first needed, in the runtime that waits for it.
    timer: Option<Timer>,
}

impl Schedule {
    /// The part of thread `number` of `threads`, each of whose arrivals is `commands` commands.
    pub(super) fn new(
        rate: f64,
        arrivals: Arrivals,
        commands: u64,
        number: usize,
        threads: usize,
    ) -> Schedule {
        let distance = commands as f64 * threads as f64 / rate;
        // Constant arrivals of several threads interleave.
        let mut schedule = Schedule {
            distance,
            arrivals,
            next: distance * number as f64 / threads as f64,
            drawn: 0,
            seed: mix(number as u64 ^ 0xa221_7a15),
            timer: None,
        };
        if arrivals == Arrivals::Poisson {
            schedule.next = 0.0;
            schedule.advance();
        }
        schedule
    }

    /// The next arrival.
    pub(super) fn next(&self) -> Duration {
        Duration::from_secs_f64(self.next)
    }

    /// How many arrivals before `end` were not taken; with random distances, the expected number.
    pub(super) fn left(&self, end: Duration) -> u64 {
        ((end.as_secs_f64() - self.next) / self.distance).ceil().max(0.0) as u64
    }

    /// Goes on to the arrival after the next.
    pub(super) fn advance(&mut self) {
        self.drawn += 1;
        self.next += match self.arrivals {
            Arrivals::Constant => self.distance,
            Arrivals::Poisson => -(1.0 - unit(mix(self.seed ^ self.drawn))).ln() * self.distance,
        };
    }

    /// Waits until `when`.
    pub(super) async fn until(&mut self, when: Instant) {
        if self.timer.is_none() {
            self.timer = Timer::new().ok();
        }
        match &mut self.timer {
            Some(timer) => timer.until(when).await,
            // Out of files: tokio's coarse timer is better than none.
            None => tokio::time::sleep_until(when.into()).await,
        }
    }
}

/// A timer with the kernel's resolution; tokio's has milliseconds.
#[derive(Debug)]
struct Timer {
    fd: AsyncFd<std::os::fd::OwnedFd>,
    timer: TimerFd,
}

impl Timer {
    fn new() -> io::Result<Timer> {
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        let watched = std::os::fd::AsFd::as_fd(&timer).try_clone_to_owned()?;
        #[expect(
            deprecated,
            reason = "sound with an OwnedFd, which cannot be closed meanwhile; its successor is unsafe"
        )]
        let fd = AsyncFd::new(watched)?;
        Ok(Timer { fd, timer })
    }

    async fn until(&mut self, when: Instant) {
        loop {
            let left = when.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let once = Expiration::OneShot(TimeSpec::from_duration(left));
            if self.timer.set(once, TimerSetTimeFlags::empty()).is_err() {
                // Cannot happen with a valid time; a coarser timer is better than none.
                tokio::time::sleep(left).await;
                continue;
            }
            match self.fd.readable().await {
                Ok(mut ready) => {
                    let _ = self.timer.wait();
                    ready.clear_ready();
                }
                Err(_) => tokio::time::sleep(left).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(arrivals: Arrivals, threads: usize, count: usize) -> Vec<f64> {
        let mut all: Vec<f64> = (0..threads)
            .flat_map(|number| {
                let mut schedule = Schedule::new(1000.0, arrivals, 1, number, threads);
                let mut arrival = || {
                    let arrival = schedule.next().as_secs_f64();
                    schedule.advance();
                    arrival
                };
                (0..count).map(|_| arrival()).collect::<Vec<_>>()
            })
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn constant_arrivals_of_all_threads_lie_at_equal_distances() {
        for (number, arrival) in arrivals(Arrivals::Constant, 4, 100).iter().enumerate() {
            assert!((arrival - number as f64 / 1000.0).abs() < 1e-6, "{number}: {arrival}");
        }
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread() {
        let all = arrivals(Arrivals::Poisson, 1, 100_000);
        let distances: Vec<f64> = all.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        let spread = distances.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / distances.len() as f64;
        assert!((mean * 1000.0 - 1.0).abs() < 0.02, "{mean}");
        assert!((spread.sqrt() / mean - 1.0).abs() < 0.03, "exponential: deviation equals mean");
    }
}
