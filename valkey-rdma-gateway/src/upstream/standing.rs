//! [`Standing`]: what a server's errors say about itself: it reads its data, it is a replica, its cluster is down.
//!
//! The connection works then, and most commands do not. The log has one line when such errors begin and one when they have ended, and
//! `/health` asks the server about its state.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracing::{info, warn};
use valkey_rdma_transport::sync::lock;

use crate::command::hello;

/// What the errors of one server say.
#[derive(Debug)]
pub(crate) struct Standing {
    /// As it is shown.
    server: String,
    /// A node of a cluster may be a replica.
    is_cluster: bool,
    /// There were such errors, and they have not ended. Without them this is one look for a reply.
    is_active: AtomicBool,
    seen: Mutex<[Seen; 3]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// When the last error came, until it counts as ended.
    last: Option<Instant>,
    /// `/health` has to ask the server.
    is_doubted: bool,
}

/// An error about the state of a server, not about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complaint {
    Loading,
    ReadOnly,
    ClusterDown,
}

impl Complaint {
    const ALL: [Self; 3] = [Self::Loading, Self::ReadOnly, Self::ClusterDown];

    fn of(reply: &[u8]) -> Option<Self> {
        if reply.first() != Some(&b'-') {
            return None;
        }
        let is_said = |complaint: &Self| reply[1..].starts_with(complaint.code().as_bytes());
        Self::ALL.into_iter().find(is_said)
    }

    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Loading => "LOADING",
            Self::ReadOnly => "READONLY",
            Self::ClusterDown => "CLUSTERDOWN",
        }
    }

    /// Without such an error for this long, other replies show that it has ended. While a server reads its data, a few commands succeed. A
    /// replica answers all that read.
    fn quiet(self) -> Duration {
        match self {
            Self::Loading => Duration::from_secs(5),
            Self::ReadOnly | Self::ClusterDown => Duration::from_secs(60),
        }
    }

    /// What `/health` asks, besides PING: it needs no permission to write.
    pub(crate) fn question(self) -> Option<&'static [&'static str]> {
        match self {
            // PING is answered with it.
            Self::Loading => None,
            Self::ReadOnly => Some(&["HELLO"]),
            Self::ClusterDown => Some(&["CLUSTER", "INFO"]),
        }
    }

    /// What the answer to that confirms, if it does. A user who may not ask learns nothing.
    pub(crate) fn confirmed(self, answer: &[u8]) -> Option<String> {
        let what = match self {
            Self::Loading => None,
            Self::ReadOnly => {
                hello::role(answer).is_some_and(|role| role == "replica").then_some("its role is replica")
            }
            Self::ClusterDown => {
                let fails = String::from_utf8_lossy(answer).lines().any(|line| line == "cluster_state:fail");
                fails.then_some("CLUSTER INFO says cluster_state:fail")
            }
        };
        what.map(|what| format!("-{}: {what}", self.code()))
    }
}

/// What the log says.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Begun(Complaint),
    Ended(Complaint),
}

impl Standing {
    pub(crate) fn new(server: String, is_cluster: bool) -> Self {
        Self { server, is_cluster, is_active: AtomicBool::new(false), seen: Mutex::default() }
    }

    /// The server, as it is shown.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Takes note of a complete reply.
    pub(crate) fn note(&self, reply: &[u8], now: Instant) {
        let server = &self.server;
        for change in self.changes(reply, now) {
            match change {
                Change::Begun(complaint) => {
                    let reply = String::from_utf8_lossy(reply);
                    warn!(%server, reply = reply.trim_end(), "the server answers with {}", complaint.code());
                }
                Change::Ended(complaint) => {
                    info!(%server, "the server does not answer with {} any more", complaint.code());
                }
            }
        }
    }

    fn changes(&self, reply: &[u8], now: Instant) -> Vec<Change> {
        let complaint = Complaint::of(reply);
        if complaint.is_none() && !self.is_active.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let mut seen = lock(&self.seen);
        for (other, seen) in Complaint::ALL.into_iter().zip(seen.iter_mut()) {
            if complaint == Some(other) {
                if seen.last.replace(now).is_none() {
                    changes.push(Change::Begun(other));
                }
                seen.is_doubted = true;
            } else if seen.last.is_some_and(|last| now.saturating_duration_since(last) >= other.quiet()) {
                seen.last = None;
                changes.push(Change::Ended(other));
            }
        }
        self.is_active.store(seen.iter().any(|seen| seen.last.is_some()), Ordering::Relaxed);
        changes
    }

    /// What `/health` has to ask the server about. Whether a replica is what its clients expect is not known: it counts as wrong for as
    /// long as they try to write, and in a cluster not at all.
    pub(crate) fn doubts(&self, now: Instant) -> Vec<Complaint> {
        let seen = lock(&self.seen);
        let is_doubted = |(complaint, seen): &(Complaint, &Seen)| {
            let is_recent =
                seen.last.is_some_and(|last| now.saturating_duration_since(last) < complaint.quiet());
            let counts = *complaint != Complaint::ReadOnly || is_recent && !self.is_cluster;
            seen.is_doubted && counts
        };
        let doubted = Complaint::ALL.into_iter().zip(seen.iter()).filter(is_doubted);
        doubted.map(|(complaint, _)| complaint).collect()
    }

    /// The server has said that it is not so any more.
    pub(crate) fn refute(&self, complaint: Complaint) {
        lock(&self.seen)[complaint as usize].is_doubted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::Change::{Begun, Ended};
    use super::Complaint::{ClusterDown, Loading, ReadOnly};
    use super::*;

    const LOADING: &[u8] = b"-LOADING the dataset\r\n";
    const READ_ONLY: &[u8] = b"-READONLY You can't write against a read only replica.\r\n";
    const DOWN: &[u8] = b"-CLUSTERDOWN The cluster is down\r\n";

    #[test]
    fn each_change_is_reported_once() {
        let (standing, begin) = (Standing::new("valkey://h:1".to_owned(), false), Instant::now());
        let note = |seconds, reply: &[u8]| standing.changes(reply, begin + Duration::from_secs(seconds));
        assert_eq!(note(0, b"+OK\r\n"), []);
        assert_eq!(note(0, b"-ERR LOADING\r\n"), []);
        assert_eq!(note(1, LOADING), [Begun(Loading)]);
        assert_eq!(note(2, LOADING), []);
        assert_eq!(note(6, b"+PONG\r\n"), [], "some commands succeed meanwhile");
        assert_eq!(note(6, LOADING), []);
        assert_eq!(note(11, b"+OK\r\n"), [Ended(Loading)]);
        assert_eq!(note(12, READ_ONLY), [Begun(ReadOnly)]);
        assert_eq!(note(13, DOWN), [Begun(ClusterDown)]);
        assert_eq!(note(73, b"$1\r\nv\r\n"), [Ended(ReadOnly), Ended(ClusterDown)]);
        assert_eq!(note(74, READ_ONLY), [Begun(ReadOnly)]);
    }

    #[test]
    fn the_server_is_asked_until_it_says_otherwise() {
        let (standing, begin) = (Standing::new("valkey://h:1".to_owned(), false), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        for reply in [LOADING, READ_ONLY, DOWN] {
            standing.changes(reply, begin);
        }
        assert_eq!(standing.doubts(after(59)), [Loading, ReadOnly, ClusterDown]);
        assert_eq!(standing.doubts(after(60)), [Loading, ClusterDown], "without clients that write");
        [Loading, ClusterDown].into_iter().for_each(|complaint| standing.refute(complaint));
        assert_eq!(standing.doubts(after(60)), []);
        standing.changes(READ_ONLY, after(61));
        assert_eq!(standing.doubts(after(61)), [ReadOnly]);
    }

    #[test]
    fn a_replica_in_a_cluster_is_not_doubted() {
        let (standing, now) = (Standing::new("valkey://h:1".to_owned(), true), Instant::now());
        standing.changes(READ_ONLY, now);
        standing.changes(DOWN, now);
        assert_eq!(standing.doubts(now), [ClusterDown]);
    }

    #[test]
    fn only_the_answer_to_the_question_confirms() {
        assert!(ReadOnly.confirmed(b"*2\r\n$4\r\nrole\r\n$7\r\nreplica\r\n").is_some());
        assert!(ReadOnly.confirmed(b"*2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n").is_none());
        assert!(ClusterDown.confirmed(b"$20\r\ncluster_state:fail\r\n\r\n").is_some());
        assert!(ClusterDown.confirmed(b"$18\r\ncluster_state:ok\r\n\r\n").is_none());
        for complaint in [ReadOnly, ClusterDown] {
            assert!(complaint.confirmed(b"-NOPERM no permission\r\n").is_none());
        }
    }
}
