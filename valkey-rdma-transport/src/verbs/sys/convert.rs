//! C's numbers, unions and addresses to ours and back. No pointers and no calls.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::Duration;

use super::bindings::{
    ibv_access_flags, ibv_async_event, ibv_event_type, ibv_mtu, ibv_port_state, ibv_send_flags, ibv_send_wr,
    ibv_send_wr_imm, ibv_send_wr_rdma, ibv_send_wr_remote, ibv_wc, ibv_wc_flags, ibv_wc_opcode,
    ibv_wc_status, ibv_wr_opcode, rdma_cm_event_type,
};
use valkey_rdma_proto::work::{Completion, FailureStatus, Outcome, SendOp, SendRequest, WrId};

use crate::device::{Access, CmEvent, DeviceFault};

/// What a connection-manager event means to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verbs) enum EventKind {
    /// The address leads to a device, to which the identifier is bound now.
    AddressResolved,
    /// There is a path; connecting may begin.
    RouteResolved,
    /// Address or route resolution failed, with this OS error number.
    ResolveFailed(i32),
    /// A peer asks to connect (listeners only).
    ConnectRequest,
    /// Something the device contract reports.
    Contract(CmEvent),
    /// Nothing that concerns a connection: `ADDR_CHANGE`, `TIMEWAIT_EXIT`, multicast.
    Unrelated,
}

/// Reads an event's number and status (`rdma_get_cm_event(3)`).
pub(in crate::verbs) fn event_kind(event: rdma_cm_event_type::Type, status: i32) -> EventKind {
    use rdma_cm_event_type as cm;
    match event {
        cm::RDMA_CM_EVENT_ADDR_RESOLVED => EventKind::AddressResolved,
        cm::RDMA_CM_EVENT_ROUTE_RESOLVED => EventKind::RouteResolved,
        cm::RDMA_CM_EVENT_ADDR_ERROR | cm::RDMA_CM_EVENT_ROUTE_ERROR => {
            EventKind::ResolveFailed(resolve_errno(status))
        }
        cm::RDMA_CM_EVENT_CONNECT_REQUEST => EventKind::ConnectRequest,
        cm::RDMA_CM_EVENT_ESTABLISHED => EventKind::Contract(CmEvent::Established),
        cm::RDMA_CM_EVENT_REJECTED => EventKind::Contract(CmEvent::Rejected { reason: status }),
        cm::RDMA_CM_EVENT_UNREACHABLE => EventKind::Contract(CmEvent::Unreachable { status }),
        cm::RDMA_CM_EVENT_CONNECT_ERROR => EventKind::Contract(CmEvent::ConnectError { status }),
        cm::RDMA_CM_EVENT_DISCONNECTED => EventKind::Contract(CmEvent::Disconnected),
        cm::RDMA_CM_EVENT_DEVICE_REMOVAL => EventKind::Contract(CmEvent::DeviceRemoved),
        _ => EventKind::Unrelated,
    }
}

/// What an asynchronous event says. Objects go by their address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verbs) enum AsyncNotice {
    /// The device failed, or goes away.
    Device,
    /// A queue pair failed.
    QueuePair { address: u64, fault: DeviceFault },
    /// A completion queue failed.
    CompletionQueue { address: u64 },
    /// A queue pair received something before it was told that the peer is connected.
    Established { address: u64 },
    /// A port cannot be used any more.
    PortDown { port: u8 },
    /// A port can be used.
    PortUp { port: u8 },
    /// Nothing that concerns a connection.
    Other { number: u32 },
}

/// Reads an asynchronous event (`ibv_get_async_event(3)`).
pub(in crate::verbs) fn async_notice(event: &ibv_async_event) -> AsyncNotice {
    use ibv_event_type as kind;
    // SAFETY: every member of the union is a pointer or an integer, and the caller zeroed what C did not fill; the type of
    // the event says which member C has filled.
    let (qp, cq, port) = unsafe { (event.element.qp, event.element.cq, event.element.port_num) };
    let queue_pair = |fault| AsyncNotice::QueuePair { address: qp as u64, fault };
    let port = u8::try_from(port).unwrap_or(0);
    match event.event_type {
        kind::IBV_EVENT_QP_FATAL => queue_pair(DeviceFault::QueuePair),
        kind::IBV_EVENT_QP_REQ_ERR => queue_pair(DeviceFault::InvalidRequest),
        kind::IBV_EVENT_QP_ACCESS_ERR => queue_pair(DeviceFault::AccessViolation),
        kind::IBV_EVENT_CQ_ERR => AsyncNotice::CompletionQueue { address: cq as u64 },
        kind::IBV_EVENT_COMM_EST => AsyncNotice::Established { address: qp as u64 },
        kind::IBV_EVENT_DEVICE_FATAL => AsyncNotice::Device,
        kind::IBV_EVENT_PORT_ERR => AsyncNotice::PortDown { port },
        kind::IBV_EVENT_PORT_ACTIVE => AsyncNotice::PortUp { port },
        number => AsyncNotice::Other { number },
    }
}

/// The kernel reports `-errno`. The library puts a bare -1 when it finds no device behind the address
/// (librdmacm `ucma_process_addr_resolved`), which must not be read as `EPERM`.
fn resolve_errno(status: i32) -> i32 {
    match status {
        -1 => libc::ENODEV,
        negative if negative < 0 => negative.saturating_neg(),
        positive => positive,
    }
}

/// The code of an ACK timeout, rounded up: 4.096 us times two to the power of the code, 1 to 31 (InfiniBand
/// specification, "Local ACK Timeout"; 0 would be without end).
pub(in crate::verbs) fn ack_timeout_code(timeout: Duration) -> u8 {
    (1..31).find(|code| Duration::from_nanos(4096 << code) >= timeout).unwrap_or(31)
}

/// Whole milliseconds for the connection manager, at least one: 0 would fail at once.
pub(in crate::verbs) fn timeout_ms(timeout: Duration) -> i32 {
    let rounded_up = timeout.as_nanos().div_ceil(1_000_000);
    i32::try_from(rounded_up).unwrap_or(i32::MAX).max(1)
}

/// `access` as `ibv_reg_mr(3)` flags. Remote write needs local write too.
pub(in crate::verbs) fn access_flags(access: Access) -> i32 {
    let mut flags = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
    if access.allows_write() {
        flags |= ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
    }
    if access.allows_read() {
        flags |= ibv_access_flags::IBV_ACCESS_REMOTE_READ;
    }
    flags as i32
}

/// Whether messages can leave by a port in this state. One that waits for its link to come back counts as up.
pub(in crate::verbs) fn port_is_up(state: ibv_port_state::Type) -> bool {
    matches!(state, ibv_port_state::IBV_PORT_ACTIVE | ibv_port_state::IBV_PORT_ACTIVE_DEFER)
}

/// An `ibv_mtu` number in bytes, if it is one.
pub(in crate::verbs) fn mtu_bytes(mtu: ibv_mtu::Type) -> Option<u32> {
    match mtu {
        ibv_mtu::IBV_MTU_256 => Some(256),
        ibv_mtu::IBV_MTU_512 => Some(512),
        ibv_mtu::IBV_MTU_1024 => Some(1024),
        ibv_mtu::IBV_MTU_2048 => Some(2048),
        ibv_mtu::IBV_MTU_4096 => Some(4096),
        _ => None,
    }
}

/// Fills identity, operation and flags of a work request; its links and scatter list are the caller's.
pub(in crate::verbs) fn describe_send(raw: &mut ibv_send_wr, request: &SendRequest, inline: bool) {
    let (opcode, remote, imm) = match request.op {
        SendOp::Send => (ibv_wr_opcode::IBV_WR_SEND, None, 0),
        SendOp::SendWithImm { imm } => (ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, None, imm),
        SendOp::Read { addr, rkey } => (ibv_wr_opcode::IBV_WR_RDMA_READ, Some((addr, rkey)), 0),
        SendOp::Write { addr, rkey } => (ibv_wr_opcode::IBV_WR_RDMA_WRITE, Some((addr, rkey)), 0),
        SendOp::WriteWithImm { addr, rkey, imm } => {
            (ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, Some((addr, rkey)), imm)
        }
    };
    raw.wr_id = request.wr_id.0;
    raw.opcode = opcode;
    raw.send_flags = 0;
    if request.signalled {
        raw.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED;
    }
    if inline {
        raw.send_flags |= ibv_send_flags::IBV_SEND_INLINE;
    }
    raw.imm_data_invalidated_rkey_union = ibv_send_wr_imm { imm_data: imm.to_be() };
    if let Some((remote_addr, rkey)) = remote {
        raw.wr = ibv_send_wr_remote { rdma: ibv_send_wr_rdma { remote_addr, rkey } };
    }
}

/// Reads a work completion. After a failure only identity and status are valid (`ibv_poll_cq(3)`), so nothing
/// else is looked at.
pub(in crate::verbs) fn completion(wc: &ibv_wc) -> Completion {
    let outcome = match wc.status {
        ibv_wc_status::IBV_WC_SUCCESS => success(wc),
        status => Outcome::Failed(failure(status)),
    };
    Completion { wr_id: WrId(wc.wr_id), outcome }
}

fn success(wc: &ibv_wc) -> Outcome {
    match wc.opcode {
        ibv_wc_opcode::IBV_WC_RECV if wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM != 0 => {
            Outcome::ReceivedWithImm { len: wc.byte_len, imm: immediate(wc) }
        }
        ibv_wc_opcode::IBV_WC_RECV => Outcome::Received { len: wc.byte_len },
        ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => {
            Outcome::Written { byte_len: wc.byte_len, imm: immediate(wc) }
        }
        _ => Outcome::Sent,
    }
}

/// The immediate of a completion that has one, in host order.
fn immediate(wc: &ibv_wc) -> u32 {
    // SAFETY: both members of the union are plain 32-bit integers, so either may be read.
    u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data })
}

fn failure(status: ibv_wc_status::Type) -> FailureStatus {
    match status {
        ibv_wc_status::IBV_WC_LOC_LEN_ERR => FailureStatus::LocalLength,
        ibv_wc_status::IBV_WC_LOC_QP_OP_ERR => FailureStatus::LocalQueuePair,
        ibv_wc_status::IBV_WC_LOC_PROT_ERR => FailureStatus::LocalProtection,
        ibv_wc_status::IBV_WC_WR_FLUSH_ERR => FailureStatus::Flushed,
        ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => FailureStatus::RemoteInvalidRequest,
        ibv_wc_status::IBV_WC_REM_ACCESS_ERR => FailureStatus::RemoteAccess,
        ibv_wc_status::IBV_WC_REM_OP_ERR => FailureStatus::RemoteOperation,
        ibv_wc_status::IBV_WC_RETRY_EXC_ERR => FailureStatus::RetryExceeded,
        ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => FailureStatus::RnrRetryExceeded,
        other => FailureStatus::Other(other),
    }
}

/// An address in C's two shapes, told apart by its first field, the family.
#[repr(C)]
pub(in crate::verbs) union RawAddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// `addr` for C.
pub(in crate::verbs) fn to_raw_addr(addr: SocketAddr) -> RawAddr {
    match addr {
        SocketAddr::V4(addr) => RawAddr {
            v4: libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: addr.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                sin_zero: [0; 8],
            },
        },
        SocketAddr::V6(addr) => RawAddr {
            v6: libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: addr.port().to_be(),
                sin6_flowinfo: addr.flowinfo().to_be(),
                sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                sin6_scope_id: addr.scope_id(),
            },
        },
    }
}

/// An IPv4 address from C.
pub(in crate::verbs) fn from_raw_v4(raw: &libc::sockaddr_in) -> SocketAddr {
    let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
    SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into()
}

/// An IPv6 address from C.
pub(in crate::verbs) fn from_raw_v6(raw: &libc::sockaddr_in6) -> SocketAddr {
    let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
    let flow = u32::from_be(raw.sin6_flowinfo);
    SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), flow, raw.sin6_scope_id).into()
}

/// The error for an address of a family that is neither IPv4 nor IPv6.
pub(in crate::verbs) fn unknown_family(family: libc::sa_family_t) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("address family {family} is neither IPv4 nor IPv6"))
}

#[cfg(test)]
mod tests {
    use super::super::bindings::{ibv_async_event_element, ibv_wc_imm};
    use super::*;

    fn work_completion(status: ibv_wc_status::Type, opcode: ibv_wc_opcode::Type) -> ibv_wc {
        ibv_wc {
            wr_id: 7,
            status,
            opcode,
            vendor_err: 0,
            byte_len: 32,
            imm_data_invalidated_rkey_union: ibv_wc_imm { imm_data: 0x0102_0304_u32.to_be() },
            qp_num: 0,
            src_qp: 0,
            wc_flags: 0,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        }
    }

    #[test]
    fn a_write_completion_carries_its_length_and_the_immediate_in_host_order() {
        let wc = work_completion(ibv_wc_status::IBV_WC_SUCCESS, ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM);
        let expected = Outcome::Written { byte_len: 32, imm: 0x0102_0304 };
        assert_eq!(completion(&wc), Completion { wr_id: WrId(7), outcome: expected });
    }

    #[test]
    fn a_failed_completion_is_a_failure_whatever_its_opcode_says() {
        let wc = work_completion(ibv_wc_status::IBV_WC_WR_FLUSH_ERR, ibv_wc_opcode::IBV_WC_RECV);
        assert_eq!(completion(&wc).outcome, Outcome::Failed(FailureStatus::Flushed));
        let wc = work_completion(ibv_wc_status::IBV_WC_FATAL_ERR, ibv_wc_opcode::IBV_WC_RECV);
        let number = ibv_wc_status::IBV_WC_FATAL_ERR;
        assert_eq!(completion(&wc).outcome, Outcome::Failed(FailureStatus::Other(number)));
    }

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        let v4: SocketAddr = "10.0.0.1:6379".parse().expect("an address");
        // SAFETY: `to_raw_addr` filled this member, for an IPv4 address.
        let raw = unsafe { to_raw_addr(v4).v4 };
        assert_eq!(from_raw_v4(&raw), v4);
        let v6 = SocketAddr::from(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 6379, 5, 3));
        // SAFETY: `to_raw_addr` filled this member, for an IPv6 address.
        let raw = unsafe { to_raw_addr(v6).v6 };
        assert_eq!(from_raw_v6(&raw), v6);
    }

    #[test]
    fn a_missing_device_is_not_reported_as_a_missing_permission() {
        let kind = event_kind(rdma_cm_event_type::RDMA_CM_EVENT_ADDR_ERROR, -1);
        assert_eq!(kind, EventKind::ResolveFailed(libc::ENODEV));
        let kind = event_kind(rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_ERROR, -libc::ETIMEDOUT);
        assert_eq!(kind, EventKind::ResolveFailed(libc::ETIMEDOUT));
    }

    #[test]
    fn events_of_no_concern_are_told_apart() {
        for event in [
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_CHANGE,
            rdma_cm_event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT,
            rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_JOIN,
            9999,
        ] {
            assert_eq!(event_kind(event, 0), EventKind::Unrelated);
        }
    }

    #[test]
    fn asynchronous_events_say_what_they_are_about() {
        let event = |event_type, element| ibv_async_event { element, event_type };
        let qp = std::ptr::without_provenance_mut(0x7f00_1234_5678);
        let fault = DeviceFault::AccessViolation;
        assert_eq!(
            async_notice(&event(ibv_event_type::IBV_EVENT_QP_ACCESS_ERR, ibv_async_event_element { qp })),
            AsyncNotice::QueuePair { address: 0x7f00_1234_5678, fault }
        );
        // C writes the port's four bytes and leaves the rest of the element as it was.
        let mut element = ibv_async_event_element { qp: std::ptr::without_provenance_mut(usize::MAX) };
        element.port_num = 2;
        assert_eq!(
            async_notice(&event(ibv_event_type::IBV_EVENT_PORT_ERR, element)),
            AsyncNotice::PortDown { port: 2 }
        );
        let fatal = event(ibv_event_type::IBV_EVENT_DEVICE_FATAL, element);
        assert_eq!(async_notice(&fatal), AsyncNotice::Device);
        assert_eq!(async_notice(&event(4711, element)), AsyncNotice::Other { number: 4711 });
    }

    #[test]
    fn timeouts_are_whole_milliseconds_and_never_zero() {
        assert_eq!(timeout_ms(Duration::ZERO), 1);
        assert_eq!(timeout_ms(Duration::from_micros(1500)), 2);
        assert_eq!(timeout_ms(Duration::MAX), i32::MAX);
    }

    #[test]
    fn ack_timeouts_are_rounded_up_to_what_devices_know() {
        assert_eq!(ack_timeout_code(Duration::ZERO), 1);
        assert_eq!(ack_timeout_code(Duration::from_nanos(8192)), 1);
        assert_eq!(ack_timeout_code(Duration::from_nanos(8193)), 2);
        assert_eq!(ack_timeout_code(Duration::from_secs(1)), 18);
        assert_eq!(ack_timeout_code(Duration::MAX), 31);
    }

    #[test]
    fn a_window_is_open_to_remote_writes_and_to_nothing_else_l3() {
        let remote = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | ibv_access_flags::IBV_ACCESS_REMOTE_READ
            | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        let window = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE as i32;
        assert_eq!(access_flags(Access::RemoteWrite) & remote as i32, window);
        assert_eq!(access_flags(Access::Local) & remote as i32, 0);
    }
}
