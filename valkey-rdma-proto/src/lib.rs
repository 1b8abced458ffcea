//! The wire protocol of Valkey over RDMA and its connection state machine, without I/O.
