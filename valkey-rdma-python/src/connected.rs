//! [`Connected`]: what `__init__` makes of an object. `__new__` makes an empty one, because Python passes it the arguments of any subclass.

use std::sync::OnceLock;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Empty until `__init__` has connected.
pub(crate) struct Connected<T>(OnceLock<T>);

impl<T> Default for Connected<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> From<T> for Connected<T> {
    fn from(connected: T) -> Self {
        Self(OnceLock::from(connected))
    }
}

impl<T> Connected<T> {
    /// # Errors
    /// RuntimeError if `__init__` did not run to its end.
    pub(crate) fn get(&self) -> PyResult<&T> {
        let missing = "the client is not connected: a subclass calls super().__init__(url) first";
        self.0.get().ok_or_else(|| PyRuntimeError::new_err(missing))
    }

    /// `None` if `__init__` did not run to its end.
    pub(crate) fn if_any(&self) -> Option<&T> {
        self.0.get()
    }

    /// # Errors
    /// RuntimeError if `__init__` has run before.
    pub(crate) fn check_new(&self) -> PyResult<()> {
        if self.0.get().is_none() { Ok(()) } else { Err(connected_already()) }
    }

    /// # Errors
    /// RuntimeError if another thread has run `__init__` meanwhile. What was connected is dropped then.
    pub(crate) fn set(&self, connected: T) -> PyResult<()> {
        self.0.set(connected).map_err(|_| connected_already())
    }
}

fn connected_already() -> PyErr {
    PyRuntimeError::new_err("the client is connected already: make another one")
}
