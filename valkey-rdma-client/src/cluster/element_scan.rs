//! HSCAN, SSCAN and ZSCAN in a cluster: on the primary of the key, whichever node that is meanwhile.

use bytes::Bytes;
use valkey_rdma_resp::Value;

use super::call::Target;
use super::client::Cluster;
use super::route::slot_of;
use crate::command::table::Access;
use crate::error::Error;
use crate::execute::sealed::Sealed;
use crate::link::Deadline;
use crate::scan::ElementScan;
use crate::scan::position::ScanPosition;

impl Cluster {
    /// Begins a scan of the fields of a hash and their values, as [`Client::scan_hash`](crate::Client::scan_hash) does.
    pub fn scan_hash(&self, key: impl AsRef<[u8]>) -> ElementScan<(Bytes, Bytes), Self> {
        ElementScan::new(self, "HSCAN", key)
    }

    /// Begins a scan of the members of a set, as [`Client::scan_set`](crate::Client::scan_set) does.
    pub fn scan_set(&self, key: impl AsRef<[u8]>) -> ElementScan<Bytes, Self> {
        ElementScan::new(self, "SSCAN", key)
    }

    /// Begins a scan of the members of a sorted set and their scores, as [`Client::scan_sorted_set`](crate::Client::scan_sorted_set) does.
    pub fn scan_sorted_set(&self, key: impl AsRef<[u8]>) -> ElementScan<(Bytes, f64), Self> {
        ElementScan::new(self, "ZSCAN", key)
    }
}

impl Sealed for Cluster {
    /// The next batch. Always from the primary: replicas have cursors of their own.
    async fn scan_on(&self, position: &mut ScanPosition) -> Result<Value, Error> {
        let target = Target::Slot(slot_of(position.key()), Access::Write);
        let deadline = self.core.config.node.command_timeout.and_then(Deadline::after);
        let (cursor, command_at) = position.split();
        self.scan_step(target, deadline, cursor, command_at).await
    }
}
