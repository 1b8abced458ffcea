//! The traits of the contract: a connection, a listener, and a request to connect, which is seen before anything is made for it.

use std::net::SocketAddr;
use std::ops::Range;
use std::task::{Context, Poll};

use bytes::BufMut;
use valkey_rdma_proto::work::{Completion, ReceiveRequest, Region, RegionId, SendRequest};

use super::{CmEvent, DeviceInfo, DeviceKind, DeviceOptions, Interrupt, Limits};
use crate::direct::DirectMemory;
use crate::error::TransportError;
use crate::send_memory::SendMemory;

/// One queue pair with its completion queue, regions and connection-manager identifier.
///
/// Not `Sync`: one owner uses it, under a lock where several tasks share a connection.
pub trait DeviceConnection: Send {
    /// Registers `len` bytes of zeroed memory. It stays registered until it is [deregistered](Self::deregister), or the connection is
    /// dropped.
    ///
    /// # Errors
    /// [`TransportError::Memory`] if the memory cannot be had or pinned (naming the `memlock` limit).
    /// [`TransportError::ReadsOff`] if the peer is to read it, and [`DeviceOptions::read_depth`](super::DeviceOptions::read_depth)
    /// is 0.
    fn register(&mut self, len: u32, access: Access) -> Result<Region, TransportError>;

    /// Registers memory of the application for sending. It stays registered and allocated until the connection is dropped. Post
    /// only [frozen](crate::PoolBuffer::freeze) bytes, and hold them for as long as the device may read them:
    /// otherwise the peer gets what is written there next.
    ///
    /// # Errors
    /// [`TransportError::Memory`] if the memory cannot be pinned (naming the `memlock` limit), another if the device lends
    /// nothing.
    fn register_send_memory(&mut self, memory: &SendMemory) -> Result<Region, TransportError>;

    /// Registers direct memory. It stays registered and allocated until it is [deregistered](Self::deregister), or the connection is
    /// dropped. Of its bytes, only those that are
    /// [exposed](crate::Stream::expose), read into or frozen are used by work requests.
    ///
    /// # Errors
    /// Same errors as [`register`](Self::register).
    fn register_direct(&mut self, memory: &DirectMemory, access: Access) -> Result<Region, TransportError>;

    /// Deregisters memory that no work request uses. The peer's key for it is worth nothing from then on. A later region may
    /// have the same [`id`](Region::id). What the region kept of an application's memory is returned: its owner may do anything when it is dropped, so
    /// do that without a lock.
    #[must_use]
    fn deregister(&mut self, region: RegionId) -> Option<SendMemory>;

    /// Lets `fill` write into a region. The caller guarantees, by the protocol's bookkeeping, that no posted work
    /// request reads or fills these bytes.
    ///
    /// # Panics
    /// If the range is outside of the region, a peer may write it, or the region was
    /// [lent](Self::register_send_memory): a local bug.
    fn write_local(&mut self, region: RegionId, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8]));

    /// Copies `bytes` into a region, from `offset` on. The peer may be reading or writing there, and so may posted work
    /// requests: what is there then is some mixture.
    ///
    /// # Panics
    /// If the bytes go beyond the region, or the region was [lent](Self::register_send_memory): a local bug.
    fn copy_in(&mut self, region: RegionId, offset: usize, bytes: &[u8]);

    /// Appends a copy of a region's bytes to `out`. A peer may be rewriting them: the copy is what counts.
    ///
    /// # Panics
    /// If the range is outside of the region, or not held bytes of a region that was [lent](Self::register_send_memory), or `out` has no
    /// room for it: a local bug.
    fn read_local(&self, region: RegionId, range: Range<usize>, out: &mut dyn BufMut);

    /// Posts a chain of sends, writes and reads with one doorbell. They are carried out in order, except that the bytes of
    /// a read may arrive after a later request was carried out. Reads beyond the [depth](Self::read_depth) wait in the
    /// queue, with everything behind them.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the device refuses one; those before it are in flight.
    /// [`TransportError::ReadsOff`] if one is a read and the [depth](Self::read_depth) is 0; none was posted.
    fn post_sends(&mut self, chain: &[SendRequest]) -> Result<(), TransportError>;

    /// Posts a batch of receives.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the device refuses one.
    fn post_receives(&mut self, batch: &[ReceiveRequest]) -> Result<(), TransportError>;

    /// Appends up to `limit` completions to `out`, oldest first. Fewer than `limit` means none are left.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the queue cannot be read (overrun, device gone); [`TransportError::SharedQueue`] if it was
    /// shared and has ended.
    fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError>;

    /// Arms the queue: one event follows the next completion. A completion that came before the call raises none, so
    /// poll after arming. Arming twice is harmless, and makes up for a lost event.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the device refuses; [`TransportError::SharedQueue`] as for [`poll`](Self::poll).
    fn arm(&mut self) -> Result<(), TransportError>;

    /// Takes one completion event; one follows each [`arm`](Self::arm) at most. `Pending` keeps the waker.
    ///
    /// # Errors
    /// [`TransportError::Device`] if events cannot be had; [`TransportError::SharedQueue`] as for [`poll`](Self::poll).
    fn poll_completion_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>>;

    /// Takes one completion event as [`poll_completion_event`](Self::poll_completion_event) does, and blocks the calling thread until
    /// there is one: `true`. `false`: something else woke the thread, such as a [connection-manager event](Self::poll_cm_event) that
    /// was polled for with the interrupt's waker. It may also be nothing.
    ///
    /// What the device does in tasks goes on meanwhile on another thread: that of the tokio runtime which the connection was made in.
    ///
    /// # Errors
    /// As for [`poll_completion_event`](Self::poll_completion_event).
    fn wait_completion_event(&mut self, interrupt: &Interrupt) -> Result<bool, TransportError> {
        interrupt.wait_for(|cx| self.poll_completion_event(cx))
    }

    /// Sends the connect request (active side) or accepts the peer's (passive side).
    ///
    /// The outcome arrives as a [`CmEvent`].
    ///
    /// # Errors
    /// [`TransportError::Device`] if the request cannot be made, or was made before.
    fn establish(&mut self) -> Result<(), TransportError>;

    /// Takes one connection-manager event. `Pending` keeps the waker.
    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>>;

    /// Asks the device whether the connection still works. A queue pair in error state completes the requests that are
    /// posted on it as failed; with nothing posted it may report nothing. Costs a system call.
    ///
    /// # Errors
    /// [`TransportError::Fault`] if the queue pair is in error state. The default implementation returns `Ok`.
    fn check(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Moves the queue pair to error and disconnects. What was not acknowledged by then is lost. Repeated calls do
    /// nothing. On the passive side, before [`establish`](Self::establish), it rejects the request. The side that
    /// disconnects first receives [`CmEvent::Disconnected`] once the peer has disconnected as well.
    fn disconnect(&mut self);

    /// The limits that the device granted.
    fn limits(&self) -> Limits;

    /// How many reads of this side can be in flight at once: agreed upon while connecting, 0 before
    /// [`CmEvent::Established`].
    fn read_depth(&self) -> u8;

    /// This side's address.
    fn local_addr(&self) -> SocketAddr;

    /// The peer's address.
    fn peer_addr(&self) -> SocketAddr;

    /// The device's name and link, for people.
    fn device(&self) -> DeviceInfo;
}

/// Who may touch a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only this side's own work requests.
    Local,
    /// Also the peer's RDMA WRITEs. The windows of the Valkey protocol are of this kind; nothing of it is ever read.
    RemoteWrite,
    /// Also the peer's RDMA READs.
    RemoteRead,
    /// Also the peer's RDMA WRITEs and READs.
    RemoteReadWrite,
}

impl Access {
    /// Whether the peer may write.
    pub fn allows_write(self) -> bool {
        matches!(self, Access::RemoteWrite | Access::RemoteReadWrite)
    }

    /// Whether the peer may read.
    pub fn allows_read(self) -> bool {
        matches!(self, Access::RemoteRead | Access::RemoteReadWrite)
    }
}

/// Waits for connect requests on one address.
pub trait DeviceListener: Send {
    /// Waits for the next connect request. `Pending` keeps the waker.
    ///
    /// # Errors
    /// [`TransportError::Device`], [`TransportError::WrongDevice`] and the like if a request cannot be taken: that
    /// one was rejected, the listener goes on. [`TransportError::DeviceRemoved`] is the listener's own end: no request
    /// will come any more, and every later call returns it too.
    fn poll_request(&mut self, cx: &mut Context<'_>)
    -> Poll<Result<Box<dyn ConnectRequest>, TransportError>>;

    /// The address it listens on, with the real port.
    fn local_addr(&self) -> SocketAddr;

    /// The kind of its device.
    fn device(&self) -> DeviceKind;
}

/// A peer that asks to connect. It waits, and nothing has been made for it yet: no queue pair, no pinned memory.
///
/// Dropping it rejects the request; the peer sees [`CmEvent::Rejected`](super::CmEvent::Rejected). It outlives
/// the [`DeviceListener`] it came from.
pub trait ConnectRequest: Send {
    /// Who asks.
    fn peer_addr(&self) -> SocketAddr;

    /// Makes an unconnected [`DeviceConnection`] for the request, whose [`establish`](DeviceConnection::establish) accepts it.
    /// Dropping the connection before that rejects the request.
    ///
    /// # Errors
    /// [`TransportError::Device`] and [`TransportError::Memory`] if an object cannot be made: the request was
    /// rejected.
    fn accept(self: Box<Self>, options: &DeviceOptions) -> Result<Box<dyn DeviceConnection>, TransportError>;
}

/// Declares the trait and implements the contract by it, so that each method is written once.
macro_rules! layer {
    (
        &self { $(fn $get:ident($($got:ident: $got_type:ty),*) $(-> $found:ty)?;)* }
        &mut self { $(fn $act:ident($($given:ident: $given_type:ty),*) $(-> $done:ty)?;)* }
    ) => {
        /// A [`DeviceConnection`] that wraps another, to watch it or to change some of what it does. Each method passes the call on to
        /// the connection below, unless the layer has a method of its own.
        /// [`wait_completion_event`](DeviceConnection::wait_completion_event) is not among them: it waits by the layer's
        /// [`poll_completion_event`](Self::poll_completion_event), also where the connection below has another way to wait.
        pub trait DeviceLayer: Send {
            /// The connection below.
            fn below(&self) -> &dyn DeviceConnection;

            /// The connection below, to be used.
            fn below_mut(&mut self) -> &mut dyn DeviceConnection;

            $(
                #[doc = concat!("[`DeviceConnection::", stringify!($get), "`]")]
                fn $get(&self, $($got: $got_type),*) $(-> $found)? {
                    self.below().$get($($got),*)
                }
            )*

            $(
                #[doc = concat!("[`DeviceConnection::", stringify!($act), "`]")]
                fn $act(&mut self, $($given: $given_type),*) $(-> $done)? {
                    self.below_mut().$act($($given),*)
                }
            )*
        }

        impl<L: DeviceLayer> DeviceConnection for L {
            $(
                fn $get(&self, $($got: $got_type),*) $(-> $found)? {
                    DeviceLayer::$get(self, $($got),*)
                }
            )*

            $(
                fn $act(&mut self, $($given: $given_type),*) $(-> $done)? {
                    DeviceLayer::$act(self, $($given),*)
                }
            )*
        }
    };
}

layer! {
    &self {
        fn read_local(region: RegionId, range: Range<usize>, out: &mut dyn BufMut);
        fn limits() -> Limits;
        fn read_depth() -> u8;
        fn local_addr() -> SocketAddr;
        fn peer_addr() -> SocketAddr;
        fn device() -> DeviceInfo;
    }
    &mut self {
        fn register(len: u32, access: Access) -> Result<Region, TransportError>;
        fn register_send_memory(memory: &SendMemory) -> Result<Region, TransportError>;
        fn register_direct(memory: &DirectMemory, access: Access) -> Result<Region, TransportError>;
        fn deregister(region: RegionId) -> Option<SendMemory>;
        fn write_local(region: RegionId, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8]));
        fn copy_in(region: RegionId, offset: usize, bytes: &[u8]);
        fn post_sends(chain: &[SendRequest]) -> Result<(), TransportError>;
        fn post_receives(batch: &[ReceiveRequest]) -> Result<(), TransportError>;
        fn poll(out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError>;
        fn arm() -> Result<(), TransportError>;
        fn poll_completion_event(cx: &mut Context<'_>) -> Poll<Result<(), TransportError>>;
        fn establish() -> Result<(), TransportError>;
        fn poll_cm_event(cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>>;
        fn check() -> Result<(), TransportError>;
        fn disconnect();
    }
}
