//! Short names of what most functions for Python take and return.

use pyo3::prelude::*;

/// An object of Python's.
pub(crate) type Any<'py> = Bound<'py, PyAny>;

/// What a call returns to Python, or raises.
pub(crate) type Answer<'py> = PyResult<Any<'py>>;
