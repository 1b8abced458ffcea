//! A client of a cluster, against a cluster: mocks in the same process, or a real one whose nodes
//! `VALKEY_RDMA_TEST_CLUSTER` names, separated by commas.

mod commands;
mod events;
mod failures;
mod large;
mod pipelines;
mod ports;
mod pubsub;
mod redirects;
#[cfg(feature = "redis")]
mod redis_rs;
mod replicas;
mod scale;
mod scan;
mod scripted;
mod silence;
mod subscribing;
mod target;
mod transactions;
