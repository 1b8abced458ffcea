//! Valkey-over-RDMA server library and mock.
