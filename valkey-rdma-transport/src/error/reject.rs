//! [`RejectReason`]: why a connection manager has rejected a connect request.

use std::fmt;

use crate::device::report::REASON_CONSUMER;

/// The status with which the peer's connection manager has rejected a connect request: a number of InfiniBand's, also on RoCE. On iWARP it is a
/// negated number of the operating system. `Display` gives the number and its name.
///
/// Source: InfiniBand specification, volume 1, "REJ - Reject", table of rejection reasons; Linux `enum ib_cm_rej_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RejectReason(pub i32);

impl RejectReason {
    /// Nothing listens on the port.
    pub(crate) const NO_LISTENER: Self = Self(8);
    /// The listener's owner said no.
    #[cfg(any(test, feature = "emulated"))]
    pub(crate) const CONSUMER: Self = Self(REASON_CONSUMER);
    /// What iWARP says where InfiniBand says that nothing listens: `ECONNREFUSED` of Linux.
    const REFUSED_ON_IWARP: Self = Self(-111);
    /// What iWARP says where InfiniBand says [`CONSUMER`](Self::CONSUMER), and if the listener's process has ended: `ECONNRESET` of Linux.
    const RESET_ON_IWARP: i32 = -104;

    /// True if no server listens there: 8, and on iWARP `ECONNREFUSED`.
    #[must_use]
    pub fn is_no_listener(self) -> bool {
        self == Self::NO_LISTENER || self == Self::REFUSED_ON_IWARP
    }

    /// True if a new request, from a new queue pair, may be accepted at once: 4, 6, 7, 10 and 30. The connection managers then disagree about
    /// the ids of one connection, most often because the peer remembers an earlier one. The server's program has not seen the request.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self.0, 4 | 6 | 7 | 10 | 30)
    }

    /// The name of the number.
    fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "no queue pair",
            2 => "no end-to-end context",
            3 => "no resources",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication ID",
            7 => "invalid communication instance",
            8 => "invalid service ID",
            9 => "invalid transport service type",
            10 => "stale connection",
            11 => "reliable datagram channel does not exist",
            12 => "port rejected: invalid GID",
            13 => "port rejected: invalid LID",
            14 => "invalid service level",
            15 => "invalid traffic class",
            16 => "invalid hop limit",
            17 => "invalid packet rate",
            18 => "invalid alternate GID",
            19 => "invalid alternate LID",
            20 => "invalid alternate service level",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "port and connection manager redirected",
            25 => "port redirected",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "consumer defined",
            29 => "invalid receiver-not-ready retry count",
            30 => "duplicate local communication ID",
            31 => "invalid class version",
            32 => "invalid flow label",
            33 => "invalid alternate flow label",
            _ => return None,
        })
    }

    /// What the number means here, and what to do.
    pub(super) fn advice(self) -> &'static str {
        match self.0 {
            REASON_CONSUMER => {
                "its server may listen on another address of that host (`rdma-bind`), or on IPv6 only; or it may be at its limit of \
                 connections or memory"
            }
            Self::RESET_ON_IWARP => {
                "its server may be at its limit of connections or memory, or it has just ended"
            }
            _ if self.is_transient() => {
                "its connection manager remembers an earlier connection; new requests were rejected too, so try again later, and compare \
                 `rdma resource show cm_id` there"
            }
            1 | 3 | 27 => {
                "its RDMA device has no queue pair or memory left: compare `rdma resource show` and max_qp of `ibv_devinfo -v` there"
            }
            12..=23 | 26 | 32 | 33 => {
                "the two machines do not agree about the path: compare MTU, GIDs and RoCE version (`valkey-rdma-doctor` on both), or choose another \
                 address with gid= or source="
            }
            _ => {
                "its connection manager did not take the request: update rdma-core and the kernel on both machines"
            }
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}", self.0)?;
        match self.name() {
            Some(name) => write!(f, ", {name}"),
            None if self.0 < 0 => {
                write!(f, ", {}", std::io::Error::from_raw_os_error(self.0.saturating_neg()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_the_connection_manager_has_a_name_of_its_own() {
        let names: Vec<_> = (1..=33).map(|number| RejectReason(number).name().expect("a name")).collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert_eq!(RejectReason(10).to_string(), "status 10, stale connection");
        assert_eq!(RejectReason(0).to_string(), "status 0");
        assert_eq!(RejectReason(77).to_string(), "status 77");
        assert!(RejectReason(-111).to_string().starts_with("status -111, Connection refused"));
        assert!(RejectReason(i32::MIN).to_string().starts_with("status -2147483648"));
    }

    #[test]
    fn a_request_that_the_server_s_program_has_answered_is_not_repeated() {
        let reset = RejectReason(RejectReason::RESET_ON_IWARP);
        for reason in
            [RejectReason::CONSUMER, RejectReason::NO_LISTENER, RejectReason::REFUSED_ON_IWARP, reset]
        {
            assert!(!reason.is_transient(), "{reason}");
        }
    }

    #[test]
    fn a_server_that_said_no_is_not_taken_for_a_fault_of_the_connection_manager() {
        for reason in [RejectReason::CONSUMER, RejectReason(RejectReason::RESET_ON_IWARP)] {
            assert!(reason.advice().contains("limit of connections"), "{reason}: {}", reason.advice());
        }
    }
}
