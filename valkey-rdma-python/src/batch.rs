//! Batches of keys and buffers, from Python's arguments and to its results.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use valkey_rdma_client::Fetched;

use crate::arguments;
use crate::errors::Failure;
use crate::memory::{self, Memory, Use};
use crate::python::Any;
use crate::transfer::{Load, PerKey, Store};

/// A key, and a buffer for its value.
pub(crate) fn load(key: &Any, buffer: &Any) -> PyResult<Load> {
    Ok(Load { key: arguments::key(key)?, memory: Memory::of(buffer, Use::Write)? })
}

/// A key, and a buffer with its value.
pub(crate) fn store(key: &Any, buffer: &Any) -> PyResult<Store> {
    Ok(Store { key: arguments::key(key)?, value: Memory::of(buffer, Use::Read)?.into_bytes() })
}

/// Keys, and a buffer for the value of each.
pub(crate) fn loads(keys: &Any, buffers: &Any) -> PyResult<Vec<Load>> {
    let pairs = pairs(keys, buffers, Use::Write)?;
    Ok(pairs.into_iter().map(|(key, memory)| Load { key, memory }).collect())
}

/// Keys, and a buffer with the value of each.
pub(crate) fn stores(keys: &Any, buffers: &Any) -> PyResult<Vec<Store>> {
    let pairs = pairs(keys, buffers, Use::Read)?;
    Ok(pairs.into_iter().map(|(key, memory)| Store { key, value: memory.into_bytes() }).collect())
}

fn pairs(key_list: &Any, buffers: &Any, purpose: Use) -> PyResult<Vec<(bytes::Bytes, Memory)>> {
    let keys = arguments::keys(key_list)?;
    let buffers = buffers.try_iter()?.collect::<PyResult<Vec<_>>>()?;
    if keys.len() != buffers.len() {
        let (keys, buffers) = (keys.len(), buffers.len());
        return Err(PyValueError::new_err(format!(
            "{keys} keys and {buffers} buffers: one for each is required"
        )));
    }
    let memory = buffers.iter().map(|buffer| Memory::of(buffer, purpose));
    let pairs: PyResult<Vec<_>> =
        keys.into_iter().zip(memory).map(|(key, memory)| Ok((key, memory?))).collect();
    if pairs.is_err() {
        // Of those before the first bad one.
        memory::release_all(key_list.py());
    }
    pairs
}

/// The length of each value that was read, and None for each key that does not exist.
///
/// # Errors
/// As [`each`].
pub(crate) fn lengths(py: Python<'_>, fetched: PerKey<Fetched>, rooms: &[usize]) -> PyResult<Py<PyAny>> {
    let lengths = fetched.into_iter().enumerate().map(|(index, fetched)| match fetched {
        Ok(Fetched::Read(len)) => Ok(Some(len)),
        Ok(Fetched::Missing) => Ok(None),
        Ok(Fetched::Skipped(len)) => Err(Failure::Size { index, len, room: rooms[index] }),
        Ok(Fetched::Refused(error)) => Err(error.into()),
        Ok(_) => Ok(None),
        Err(error) => Err(error.into()),
    });
    each(py, lengths.collect())
}

/// As [`lengths`], of one key.
pub(crate) fn length(py: Python<'_>, fetched: PerKey<Fetched>, rooms: &[usize]) -> PyResult<Py<PyAny>> {
    let lengths = lengths(py, fetched, rooms)?;
    Ok(lengths.bind(py).cast::<PyList>()?.get_item(0)?.unbind())
}

/// None.
///
/// # Errors
/// As [`each`].
pub(crate) fn stored(py: Python<'_>, stored: PerKey<()>) -> PyResult<Py<PyAny>> {
    let outcomes = stored.into_iter().map(|stored| stored.map(|()| None).map_err(Failure::from));
    each(py, outcomes.collect()).map(|_| py.None())
}

/// The list of outcomes.
///
/// # Errors
/// The first failure, after all of the batch was tried. Its attribute `outcomes` is that list, with an exception for each key that
/// failed.
fn each(py: Python<'_>, outcomes: Vec<Result<Option<usize>, Failure>>) -> PyResult<Py<PyAny>> {
    let first = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
    // Not the same object as in the list: a circle would keep the caller's buffers until the next collection.
    let first = first.map(|failure| failure.exception(py)).transpose()?;
    let list = outcomes.iter().map(|outcome| match outcome {
        Ok(length) => length.into_bound_py_any(py),
        Err(failure) => failure.exception(py),
    });
    let list = PyList::new(py, list.collect::<PyResult<Vec<_>>>()?)?;
    let Some(first) = first else { return Ok(list.into_any().unbind()) };
    if outcomes.len() > 1 {
        first.setattr("outcomes", list)?;
    }
    Err(PyErr::from_value(first))
}
