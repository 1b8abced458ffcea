//! The waits between attempts to connect to a server that is away.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// The wait before the next attempt, after this many that followed each other: between half and the whole of 50 ms, which doubles to
/// 400 ms. Connections that were lost at the same moment do not try at the same moments.
pub(crate) fn wait(attempts: u32) -> Duration {
    ceiling(attempts).mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Waits for that time, or until another connection has reached the server.
pub(crate) async fn pause(attempts: u32, reached: &mut watch::Receiver<()>) {
    tokio::select! {
        () = sleep(wait(attempts)) => {}
        // There is always a sender: see `Server`.
        Ok(()) = reached.changed() => {}
    }
}

fn ceiling(attempts: u32) -> Duration {
    (FIRST * 2_u32.saturating_pow(attempts.min(10))).min(LONGEST)
}

const FIRST: Duration = Duration::from_millis(50);
/// A server that comes back is found within this time. An attempt at each of them costs little, also if it is away for long.
const LONGEST: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn waits_double_to_the_longest_and_differ() {
        let ceilings = [0, 1, 2, 3, 4, 40, u32::MAX].map(|attempts| ceiling(attempts).as_millis());
        assert_eq!(ceilings, [50, 100, 200, 400, 400, 400, 400]);
        for attempts in 0..6 {
            let waits: Vec<_> = (0..50).map(|_| wait(attempts)).collect();
            let range = ceiling(attempts) / 2..=ceiling(attempts);
            assert!(waits.iter().all(|wait| range.contains(wait)), "{waits:?}");
            assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_reaches_the_server_ends_the_waits_of_the_others() {
        let server = watch::Sender::new(());
        let mut receivers = [server.subscribe(), server.subscribe()];
        let [one, other] = &mut receivers;
        let (mut one, mut other) = (pin!(pause(5, one)), pin!(pause(5, other)));
        // The clock stands still: nothing else can end them.
        let mut cx = Context::from_waker(Waker::noop());
        assert!(one.as_mut().poll(&mut cx).is_pending() && other.as_mut().poll(&mut cx).is_pending());
        server.send_replace(());
        assert_eq!([one.as_mut().poll(&mut cx), other.as_mut().poll(&mut cx)], [Poll::Ready(()); 2]);
    }
}
