//! [`DeviceLayer`]: a device connection that changes some of what the one below it does.

use std::net::SocketAddr;
use std::ops::Range;
use std::task::{Context, Poll};

use bytes::BufMut;
use valkey_rdma_proto::work::{Completion, ReceiveRequest, Region, RegionId, SendRequest};

use super::{Access, CmEvent, DeviceConnection, DeviceInfo, Limits};
use crate::error::TransportError;
use crate::in_place::SendMemory;

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
