//! What can go wrong between this process and the peer's queue pair.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use valkey_rdma_proto::work::FailureStatus;
use valkey_rdma_proto::{CloseReason, ProtocolError};

use self::explain::{EMFILE, ENFILE, device_hint, gid_text, limit_text, status_text};
use crate::address::{AddressError, listen_advice};
use crate::device::obstacle::Obstacle;
use crate::device::report::{CmEvent, DeviceFault, DeviceKind, SharedCqError};

pub(crate) mod explain;
mod reject;

pub(crate) use self::explain::descriptor_limit;
#[cfg(feature = "verbs")]
pub(crate) use self::explain::memlock_limit;
pub use self::explain::{GidProblem, SystemError, is_out_of_descriptors};
pub use self::reject::RejectReason;

/// A failure of the device, the path or the peer's conduct, on one connection or listener.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// This process was forked from one that had used RDMA. The kernel refuses a child what its parent has opened.
    #[error(
        "this process was forked from process {parent}, which had used RDMA before: start a new program for it (exec; in Python, \
             multiprocessing's `spawn`), fork before RDMA is first used, or use TCP here"
    )]
    Forked {
        /// The id of the parent.
        parent: u32,
    },
    /// The program was built without the cargo feature for this device.
    #[error(
        "this build has no `{device}` device: rebuild with the cargo feature `{device}` (`--features {device}`)"
    )]
    NotBuilt {
        /// The device asked for.
        device: DeviceKind,
    },
    /// The emulated device was asked for something that only an RDMA device has.
    #[error("the emulated device has no choice of {option}: leave that option out, or use an RDMA device")]
    EmulatedOption {
        /// What was asked for.
        option: &'static str,
    },
    /// There is no RDMA device on this machine.
    #[error(
        "no RDMA device on this machine: load its driver, or make a software one with \
             `rdma link add rxe0 type rxe netdev NETDEV`"
    )]
    NoDevice,
    /// No emulated device has this name.
    #[error(
        "no emulated device is called `{name}`: use `inprocess`, `tcp`, `unix:DIR`, or omit it to choose automatically"
    )]
    UnknownLink {
        /// The name asked for.
        name: String,
    },
    /// The kernel has RDMA devices, and libibverbs does not know how to use them.
    #[error(
        "no driver in user space for RDMA device {devices}: install rdma-core's providers (ibverbs-providers)"
    )]
    NoProvider {
        /// The kernel's devices, separated by commas.
        devices: String,
    },
    /// The kernel has RDMA devices, and this process cannot reach them.
    #[error("RDMA device {devices} cannot be used here: {obstacle}; {}", .obstacle.remedy())]
    Obstacle {
        /// The kernel's devices, separated by commas.
        devices: String,
        /// What is in the way.
        obstacle: Obstacle,
    },
    /// A library of rdma-core is not installed. The next attempt looks for it again.
    #[error(
        "`rdma://` needs {library}, which cannot be loaded: install rdma-core's libraries (Debian, Ubuntu: `apt install \
             libibverbs1 librdmacm1 ibverbs-providers`; Fedora, RHEL: `dnf install libibverbs librdmacm`)"
    )]
    Library {
        /// Its file name.
        library: &'static str,
        /// What the dynamic linker reported.
        #[source]
        source: SystemError,
    },
    /// A library of rdma-core lacks a function.
    #[error("{library} has no function `{symbol}`: update rdma-core's libraries to version 35 or later")]
    LibrarySymbol {
        /// The library's file name.
        library: &'static str,
        /// The function.
        symbol: &'static str,
        /// What the dynamic linker reported.
        #[source]
        source: SystemError,
    },
    /// The device that would serve is down.
    #[error(
        "port {port} of RDMA device {device} is {state}: bring its link up (`ip link set NETDEV up`; cable; switch)"
    )]
    PortDown {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
        /// The port's state, as the kernel names it.
        state: String,
    },
    /// A GID index that cannot be used.
    #[error("{}", gid_text(.device, *.index, .problem))]
    Gid {
        /// The device.
        device: String,
        /// The index asked for.
        index: u32,
        /// Why not.
        problem: GidProblem,
    },
    /// A source address that cannot be used.
    #[error(
        "no RDMA device of this machine can reach {peer} from {from}: check that {from} is the address of an RDMA device's \
             interface (`rdma link`, `ip address`) and `ip route get {} from {from}`",
        .peer.ip()
    )]
    Source {
        /// The source address asked for.
        from: IpAddr,
        /// Where the connection was to go.
        peer: SocketAddr,
        /// The connection manager's error.
        #[source]
        source: SystemError,
    },
    /// A queue deeper than the device can have.
    #[error(
        "a {queue} of {asked} entries is beyond RDMA device {device}, which has at most {limit}: ask for fewer"
    )]
    QueueDepth {
        /// The device.
        device: String,
        /// Which queue.
        queue: &'static str,
        /// The depth asked for.
        asked: u32,
        /// The device's limit.
        limit: u32,
    },
    /// RDMA READ on a connection that was made without it.
    #[error(
        "RDMA READ is off on this connection: it needs `DeviceOptions::read_depth` on the side that reads, and where the \
             memory is registered"
    )]
    ReadsOff,
    /// A direct transfer, or memory for one, where the two sides have not agreed on them.
    #[error(
        "this connection has no direct transfers: over RDMA, the server must offer them and the client ask for them \
             (`FeatureSet::DIRECT`); the client exposes memory, the server transfers"
    )]
    DirectOff,
    /// More bytes than the peer has named memory for.
    #[error("{bytes} bytes do not fit into the {room} bytes that the peer has exposed")]
    DirectRange {
        /// The bytes to transfer.
        bytes: usize,
        /// The length of the peer's range.
        room: u32,
    },
    /// A work request failed, and with it the queue pair.
    #[error("work request {id} failed: {status}")]
    WorkRequest {
        /// The id that it was posted with.
        id: u64,
        /// Why.
        status: FailureStatus,
    },
    /// A completion vector that the device does not have.
    #[error("RDMA device {device} has no completion vector {asked}: it has {count}, counted from 0")]
    CompletionVector {
        /// The device.
        device: String,
        /// The vector asked for.
        asked: u32,
        /// How many there are.
        count: u32,
    },
    /// The process may open no more descriptors.
    #[error(
        "no file descriptor left for {call} (limit: {}); raise it with `ulimit -n` or LimitNOFILE=, or hold fewer \
             connections: each takes one, or two over RDMA",
        .limit.map_or_else(|| "none".to_owned(), |count| count.to_string())
    )]
    Descriptors {
        /// The call that needed one, by the name its manual page has.
        call: &'static str,
        /// The process's soft `RLIMIT_NOFILE`, where there is one.
        limit: Option<u64>,
        /// The OS error.
        #[source]
        source: SystemError,
    },
    /// The whole system may open no more files.
    #[error(
        "the system has no file left for {call}; raise its limit with `sysctl fs.file-max=`, or hold fewer \
             connections: each takes one, or two over RDMA"
    )]
    SystemDescriptors {
        /// The call that needed one, by the name its manual page has.
        call: &'static str,
        /// The OS error.
        #[source]
        source: SystemError,
    },
    /// The device reported a fault of itself or of the connection's queues.
    #[error("RDMA device {device} reported: {fault}")]
    Fault {
        /// The device.
        device: String,
        /// What it reported.
        fault: DeviceFault,
    },
    /// The route leads to another device than the one asked for.
    #[error("the route to {peer} leads to device `{found}`, not `{wanted}`")]
    WrongDevice {
        /// Where the connection was to go.
        peer: SocketAddr,
        /// The device asked for.
        wanted: String,
        /// The device the route leads to.
        found: String,
    },
    /// No RDMA device leads to the address.
    #[error("no RDMA device of this machine can reach {peer}: check `rdma link` and `ip route get {}`", .peer.ip())]
    Resolve {
        /// The address.
        peer: SocketAddr,
        /// The connection manager's error.
        #[source]
        source: SystemError,
    },
    /// The address itself cannot be used.
    #[error("{0}")]
    Address(AddressError),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr} ({device}){}", listen_advice(*.addr, .source))]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The device.
        device: DeviceKind,
        /// Why.
        #[source]
        source: SystemError,
    },
    /// A socket that stands for an address of the emulated device cannot be connected to.
    #[error("cannot connect to {} (emulated device)", path.display())]
    Socket {
        /// The Unix socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: SystemError,
    },
    /// Memory cannot be had or pinned.
    #[error("cannot register {bytes} bytes of memory (memlock limit: {}); raise it with `ulimit -l` or \
             LimitMEMLOCK=, or use smaller windows", limit_text(*.limit))]
    Memory {
        /// How many bytes were to be registered.
        bytes: u64,
        /// The process's soft `RLIMIT_MEMLOCK` in bytes, where there is one.
        limit: Option<u64>,
        /// What the device said.
        #[source]
        source: SystemError,
    },
    /// A call into the device failed.
    #[error("{call} failed{}", device_hint(.source))]
    Device {
        /// The call, by the name its manual page has.
        call: &'static str,
        /// The OS error.
        #[source]
        source: SystemError,
    },
    /// The completion queue that the connection shared with others of its [group](crate::SharedCq) has ended, and with
    /// it all of them.
    #[error("the completion queue that this connection shared with others has ended: {cause}")]
    SharedQueue {
        /// Why.
        cause: SharedCqError,
    },
    /// The runtime that drove the connection has shut down: the one in which the stream was made, or was last
    /// [driven](crate::Stream::driven).
    #[error(
        "the tokio runtime that drove this connection has shut down: keep it for as long as its connections"
    )]
    RuntimeEnded,
    /// The peer's host refused the connection.
    #[error(
        "{peer} refused the connection ({device}): nothing listens there, or not on this transport (connection manager \
             {reason})"
    )]
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// The device.
        device: DeviceKind,
        /// What the connection manager reported: that nothing listens.
        reason: RejectReason,
    },
    /// The listener at the address, or its host's connection manager, rejected the connection.
    #[error("{peer} rejected the connection ({device}): {} (connection manager {reason})", .reason.advice())]
    Rejected {
        /// The peer.
        peer: SocketAddr,
        /// The device.
        device: DeviceKind,
        /// What the connection manager reported.
        reason: RejectReason,
    },
    /// The peer's host did not answer.
    #[error(
        "{peer} is unreachable ({device}): no answer ({}); check the route, the firewall and that the server listens on \
             RDMA (`CONFIG GET rdma-port`)",
        status_text(*.status)
    )]
    Unreachable {
        /// The peer.
        peer: SocketAddr,
        /// The device.
        device: DeviceKind,
        /// The connection manager's status.
        status: i32,
    },
    /// Connecting took too long.
    #[error("no connection to {peer} within {after:?}")]
    ConnectTimeout {
        /// The peer.
        peer: SocketAddr,
        /// The deadline.
        after: Duration,
    },
    /// The peer accepted, then closed without offering its memory.
    #[error(
        "{peer} closed the connection during the handshake: the server may be at its client limit (raise maxclients), \
             or in protected mode (set a password, or `protected-mode no`)"
    )]
    ClosedInHandshake {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer accepted, then did not offer its memory in time.
    #[error(
        "{peer} accepted the connection and did not register its memory within {after:?}: it may hang, or be no Valkey \
             server; if it is only slow, raise the timeout"
    )]
    SilentInHandshake {
        /// The peer.
        peer: SocketAddr,
        /// How long it had.
        after: Duration,
    },
    /// The peer broke the protocol.
    #[error("the peer broke the protocol")]
    Protocol(#[from] ProtocolError),
    /// The connection ended for this reason.
    #[error("connection lost: {0}")]
    Lost(CloseReason),
    /// The device under the connection was removed.
    #[error("the RDMA device was removed")]
    DeviceRemoved,
    /// The connection or listener was closed on this side.
    #[error("closed on this side")]
    Closed,
}

impl TransportError {
    /// Whether the wait for the connection manager's next event failed. A listener that returns this has lost no client, and most
    /// likely returns it again at once.
    #[doc(hidden)]
    pub fn is_of_event_wait(&self) -> bool {
        matches!(self, Self::Device { call: EVENT_READY | EVENT_TAKEN, .. })
    }

    /// The error of a `call` that failed. A shortage of descriptors has an error of its own. For our other crates.
    #[doc(hidden)]
    pub fn of_call(call: &'static str, source: impl Into<SystemError>) -> Self {
        let source = source.into();
        match source.raw_os_error() {
            Some(EMFILE) => Self::Descriptors { call, limit: descriptor_limit(), source },
            Some(ENFILE) => Self::SystemDescriptors { call, source },
            _ => Self::Device { call, source },
        }
    }

    /// Returns the error of a connection attempt to `peer` that `event` ended, for code that drives a
    /// [`DeviceConnection`](crate::device::DeviceConnection) itself.
    #[doc(hidden)]
    pub fn never_connected(event: CmEvent, peer: SocketAddr, device: DeviceKind) -> Self {
        match event {
            CmEvent::Rejected { reason } => match RejectReason(reason) {
                reason if reason.is_no_listener() => Self::Refused { peer, device, reason },
                reason => Self::Rejected { peer, device, reason },
            },
            CmEvent::Unreachable { status } => Self::Unreachable { peer, device, status },
            // A server that accepts and closes at once may be gone before this side has completed the connection
            // (spec clause H-7).
            CmEvent::ConnectError { .. } => Self::ClosedInHandshake { peer },
            CmEvent::DeviceRemoved => Self::DeviceRemoved,
            CmEvent::Established | CmEvent::Disconnected | CmEvent::PortDown | CmEvent::PortUp => {
                Self::Closed
            }
        }
    }
}

/// The call that says that an event of the connection manager is there.
pub(crate) const EVENT_READY: &str = "epoll_wait";

/// The call that takes it.
pub(crate) const EVENT_TAKEN: &str = "rdma_get_cm_event";

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_failed_call_names_the_usual_remedy() {
        for (number, remedy) in
            [(12, "max_qp"), (22, "send_depth"), (1, "/dev/infiniband"), (13, "ulimit -l"), (19, "rdma link")]
        {
            let source = io::Error::from_raw_os_error(number).into();
            let text = TransportError::Device { call: "ibv_create_qp", source }.to_string();
            assert!(text.starts_with("ibv_create_qp failed (") && text.contains(remedy), "{text}");
        }
        let source = io::Error::from_raw_os_error(5).into();
        assert_eq!(
            TransportError::Device { call: "ibv_create_qp", source }.to_string(),
            "ibv_create_qp failed"
        );
    }

    #[test]
    fn an_error_of_the_system_is_the_source_of_each_clone() {
        let source = io::Error::from_raw_os_error(5).into();
        let error = TransportError::Device { call: "ibv_poll_cq", source }.clone();
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(5));
    }

    #[test]
    fn a_shortage_of_descriptors_is_found_behind_other_errors() {
        for (number, found) in [(EMFILE, true), (ENFILE, true), (5, false)] {
            let shortage = TransportError::of_call("epoll_ctl", io::Error::from_raw_os_error(number));
            let outer = io::Error::other(shortage.clone());
            assert_eq!(is_out_of_descriptors(&shortage), found, "{shortage:?}");
            assert_eq!(is_out_of_descriptors(&outer), found, "{outer:?}");
        }
    }

    #[test]
    fn a_rejection_names_the_other_address_first() {
        let peer = ([10, 0, 0, 2], 6379).into();
        let text = |reason| {
            TransportError::never_connected(CmEvent::Rejected { reason }, peer, DeviceKind::Verbs).to_string()
        };
        let rejected = text(28);
        for part in
            ["another address of that host", "rdma-bind", "IPv6 only", "limit of connections", "status 28"]
        {
            assert!(rejected.contains(part), "{rejected}");
        }
        assert!(text(8).contains("nothing listens there") && text(8).contains("status 8"), "{}", text(8));
        assert!(text(-111).contains("nothing listens there"), "{}", text(-111));
    }

    #[test]
    fn a_reject_of_the_connection_manager_is_not_called_a_missing_listener() {
        let peer = ([10, 0, 0, 2], 6379).into();
        for (reason, parts) in [
            (10, ["status 10, stale connection", "remembers an earlier connection"]),
            (3, ["status 3, no resources", "max_qp"]),
            (26, ["status 26, invalid path MTU", "compare MTU"]),
            (5, ["status 5, unsupported request", "update rdma-core"]),
        ] {
            let event = CmEvent::Rejected { reason };
            let error = TransportError::never_connected(event, peer, DeviceKind::Verbs);
            let text = error.to_string();
            assert!(
                parts.iter().all(|part| text.contains(part)) && !text.contains("nothing listens"),
                "{text}"
            );
        }
    }

    #[test]
    fn an_address_that_cannot_be_listened_on_comes_with_what_to_do() {
        let addr = ([10, 0, 0, 1], 17100).into();
        let source = io::ErrorKind::AddrInUse.into();
        let text = TransportError::Listen { addr, device: DeviceKind::Verbs, source }.to_string();
        assert_eq!(
            text,
            "cannot listen on 10.0.0.1:17100 (verbs); stop the program that listens there, or choose another port"
        );
    }

    #[test]
    fn an_ambiguous_gid_index_lists_the_devices() {
        let device = "mlx5_0, mlx5_1".to_owned();
        let text = TransportError::Gid { device, index: 3, problem: GidProblem::WhichDevice }.to_string();
        assert!(
            text.starts_with("GID index 3 is ambiguous") && text.contains("mlx5_0, mlx5_1; add device="),
            "{text}"
        );
    }

    #[test]
    fn an_unreachable_peer_is_described_with_the_reason_and_what_to_check() {
        let peer = ([192, 0, 2, 1], 6379).into();
        let text = TransportError::Unreachable { peer, device: DeviceKind::Verbs, status: -110 }.to_string();
        for part in ["timed out", "-110", "rdma-port"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
