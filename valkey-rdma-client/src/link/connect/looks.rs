//! [`Looks`]: when a doubt about a server is looked into; and whether its name has moved.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

/// When a doubt is looked into: at once, and then ever more seldom. A replica on purpose raises it for as long as somebody tries to write.
#[derive(Debug, Default)]
pub struct Looks {
    last: Option<Instant>,
    wait: Duration,
}

impl Looks {
    /// The time between two looks at first.
    const FIRST: Duration = Duration::from_secs(5);
    /// The time between two looks after many in a row.
    pub const LONGEST: Duration = Duration::from_secs(60);

    /// Whether it is time to look. If so, the look counts as begun.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let since = self.last.map(|last| now.saturating_duration_since(last));
        if since.is_some_and(|since| since < self.wait) {
            return false;
        }
        self.wait = match since {
            Some(since) if since < self.wait + Self::LONGEST => (self.wait * 2).min(Self::LONGEST),
            _ => Self::FIRST,
        };
        self.last = Some(now);
        true
    }
}

/// Whether a name that has these addresses means other ones than that of a connection.
pub fn is_elsewhere(addresses: &[SocketAddr], peer: Option<SocketAddr>) -> bool {
    let ip = |address: &SocketAddr| address.ip().to_canonical();
    !addresses.is_empty() && !addresses.iter().any(|address| Some(ip(address)) == peer.as_ref().map(ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_on_purpose_is_looked_into_ever_more_seldom() {
        let (mut looks, begin) = (Looks::default(), Instant::now());
        let due = (0..300).filter(|second| looks.is_due(begin + Duration::from_secs(*second)));
        assert_eq!(due.collect::<Vec<_>>(), [0, 5, 15, 35, 75, 135, 195, 255]);
        assert!(looks.is_due(begin + Duration::from_secs(3000)));
        assert!(looks.is_due(begin + Duration::from_secs(3005)), "it was quiet for long");
    }
}
