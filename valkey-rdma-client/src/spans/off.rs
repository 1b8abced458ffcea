//! Without the feature: the compiler leaves nothing of these.

use std::future::Future;
use std::sync::Arc;

use valkey_rdma_resp::Value;

use super::Batch;
use crate::command::{Command, EncodedPipeline};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::stats::{ConnectionInfo, Purpose};

/// No span.
#[derive(Debug, Default)]
pub(crate) struct Call(());

impl Call {
    pub(crate) fn command(_: &Endpoint, _: &Command) -> Self {
        Self(())
    }

    pub(crate) fn pipeline(_: &Endpoint, _: &mut EncodedPipeline) -> Self {
        Self(())
    }

    pub(crate) fn batch(_: &Endpoint, _: Batch, _: &[Command]) -> Self {
        Self(())
    }

    pub(crate) fn times(_: &Endpoint, _: &str, _: usize) -> Self {
        Self(())
    }

    pub(crate) fn begin<T, F: Future<Output = Result<T, Error>>>(&self, work: F) -> F {
        work
    }

    pub(crate) fn run<T, F: Future<Output = Result<T, Error>>>(&self, work: F) -> F {
        work
    }

    pub(crate) fn run_all<E, F>(&self, work: F) -> F
    where
        F: Future<Output = Result<Vec<Result<Value, E>>, Error>>,
    {
        work
    }

    pub(crate) fn failed<E>(&self, _: &E) {}

    pub(crate) fn moved(&self, _: &str) {}
}

pub(crate) fn used(_: impl FnOnce() -> Arc<ConnectionInfo>) {}

pub(crate) fn connect<F>(_: &Endpoint, _: Option<Purpose>, work: F) -> F {
    work
}
