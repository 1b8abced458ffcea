//! A client of a cluster, against a cluster: mocks in the same process, or a real one whose nodes
//! `VALKEY_RDMA_TEST_CLUSTER` names, separated by commas.
//!
//! Tests in modules named `mocks_only` bring mocks of their own, and nothing else: the lab's suite leaves them out.

mod commands;
mod large;
mod pipelines;
mod pubsub;
mod scan;
mod scripted;
mod target;
mod transactions;

#[path = "."]
mod mocks_only {
    mod closing;
    mod events;
    mod failures;
    mod ports;
    mod programs;
    mod redirects;
    #[cfg(feature = "redis")]
    mod redis_rs;
    mod replicas;
    mod scale;
    mod silence;
    mod strangers;
    mod subscribing;
}
