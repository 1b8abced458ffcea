//! Devices and the async byte stream of Valkey over RDMA.
