//! [`Local`]: what a forked child must not use.

use std::{mem, process};

use pyo3::prelude::*;

use crate::errors::Failure;

/// Something that belongs to one process. In a forked child it is neither used nor dropped: its descriptors are shared with the
/// parent, and its locks may be held by threads that the child does not have.
pub(crate) struct Local<T> {
    process: u32,
    /// Taken only by `drop`.
    value: Option<T>,
}

impl<T> Local<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: process::id(), value: Some(value) }
    }

    /// The value. `None` in a forked child.
    pub(crate) fn here(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.process == process::id())
    }

    /// As [`here`](Self::here), to change it.
    pub(crate) fn here_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|_| self.process == process::id())
    }

    /// # Errors
    /// ForkedError in a forked child.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.here().ok_or_else(|| Failure::Forked.raise(py))
    }
}

impl<T> Drop for Local<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            mem::forget(self.value.take());
        }
    }
}
