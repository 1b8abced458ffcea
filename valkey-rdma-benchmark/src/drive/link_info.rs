//! [`LinkInfo`]: the device under a connection, and its encryption.

use std::sync::Arc;

use valkey_rdma_transport::tls::TlsInfo;

/// What a connection runs on, as far as its transport has such things.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LinkInfo {
    /// The RDMA device.
    pub(crate) device: Option<String>,
    /// Its active path MTU in bytes.
    pub(crate) mtu: Option<u32>,
    /// Length of our receive window in bytes.
    pub(crate) rx_window: Option<u32>,
    /// Length of the server's.
    pub(crate) tx_window: Option<u32>,
    /// What was agreed on, if it is encrypted.
    pub(crate) tls: Option<Arc<TlsInfo>>,
}
