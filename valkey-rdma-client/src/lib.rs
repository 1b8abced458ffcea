//! Async multiplexed Valkey client over RDMA, with TCP beside it.
