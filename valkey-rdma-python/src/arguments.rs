//! Python's arguments as commands.

use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple, PyType};
use valkey_rdma_client::Command;

use crate::memory::{self, Memory, Use};
use crate::python::Any;

/// A command of these arguments: str (as UTF-8), int, float, and objects with a buffer, of which long ones are sent from where they
/// are.
pub(crate) fn command(arguments: &Bound<'_, PyTuple>, timeout: Option<Duration>) -> PyResult<Command> {
    let command = without_timeout(arguments).inspect_err(|_| {
        // Of the arguments before the bad one.
        memory::release_all(arguments.py());
    })?;
    Ok(match timeout {
        Some(limit) => command.timeout(limit),
        None => command,
    })
}

fn without_timeout(arguments: &Bound<'_, PyTuple>) -> PyResult<Command> {
    let mut arguments = arguments.iter();
    let Some(name) = arguments.next() else { return Err(PyTypeError::new_err("a command needs a name")) };
    let mut command = match bytes(&name)? {
        Argument::Owned(name) => Command::new(name),
        Argument::Shared(name) => Command::new(name),
    };
    for argument in arguments {
        command = match bytes(&argument)? {
            Argument::Owned(bytes) => command.arg(bytes),
            Argument::Shared(bytes) => command.arg(bytes),
        };
    }
    Ok(command)
}

/// A key: str or bytes-like.
pub(crate) fn key(object: &Any) -> PyResult<Bytes> {
    Ok(match bytes(object)? {
        Argument::Owned(bytes) => bytes.into(),
        Argument::Shared(bytes) => {
            let copy = Bytes::copy_from_slice(&bytes);
            drop(bytes);
            memory::release_all(object.py());
            copy
        }
    })
}

/// Keys, from any iterable of them but a string.
pub(crate) fn keys(objects: &Any) -> PyResult<Vec<Bytes>> {
    if objects.is_instance_of::<PyString>() || objects.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err("a list of keys is required, not one string"));
    }
    objects.try_iter()?.map(|object| key(&object?)).collect()
}

/// Seconds: None, or a number from 0 to [`LONGEST`].
///
/// # Errors
/// ValueError with the argument's name, its range and the number.
pub(crate) fn seconds(name: &str, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    within(name, seconds, "from 0 to", |seconds| seconds >= 0.0)
}

/// The time limit of a call: None, or more than 0 seconds. A call without time could neither succeed nor say whether it ran.
///
/// # Errors
/// As [`seconds`].
pub(crate) fn limit(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let limit = within("timeout", timeout, "more than 0 and at most", |seconds| seconds > 0.0)?;
    // Less than the clock shows is still more than nothing.
    Ok(limit.map(|limit| limit.max(Duration::from_nanos(1))))
}

/// A time to live in milliseconds: at least 1 ms.
///
/// # Errors
/// As [`seconds`].
pub(crate) fn time_to_live(ttl: Option<f64>) -> PyResult<Option<u64>> {
    let ttl = within("ttl", ttl, "from 0.001 to", |seconds| seconds >= 0.001)?;
    Ok(ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)))
}

fn within(
    name: &str,
    seconds: Option<f64>,
    range: &str,
    is_enough: impl Fn(f64) -> bool,
) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    let fitting = Some(seconds).filter(|&seconds| is_enough(seconds) && seconds <= LONGEST);
    match fitting.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(duration) => Ok(Some(duration)),
        None => {
            // As Python writes it.
            let shown = if seconds.is_nan() { "nan".to_owned() } else { format!("{seconds:?}") };
            Err(PyValueError::new_err(format!("{name} must be {range} {LONGEST:e} seconds, not {shown}")))
        }
    }
}

/// Longer times, in seconds, are mistakes, and overflow the server's milliseconds.
const LONGEST: f64 = 1e12;

enum Argument {
    Owned(Vec<u8>),
    /// Memory of a Python object.
    Shared(Bytes),
}

/// Shorter arguments are copied: that costs less than to keep the object.
const SHARED_FROM: usize = 8 * 1024;

fn bytes(object: &Any) -> PyResult<Argument> {
    if let Ok(bytes) = object.cast::<PyBytes>()
        && bytes.as_bytes().len() < SHARED_FROM
    {
        return Ok(Argument::Owned(bytes.as_bytes().to_vec()));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Argument::Owned(text.to_cow()?.into_owned().into_bytes()));
    }
    if let Some(kind) = kind_of_number(object) {
        // Subclasses print something else: their names.
        let text = kind.call_method1(intern!(object.py(), "__repr__"), (object,))?;
        return Ok(Argument::Owned(text.cast::<PyString>()?.to_cow()?.into_owned().into_bytes()));
    }
    if !memory::has_buffer(object) {
        let name = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "arguments are str, int, float or bytes-like objects, not {name}"
        )));
    }
    if is_number_with_a_buffer(object)? {
        let name = object.get_type().fully_qualified_name()?;
        return Err(PyTypeError::new_err(format!(
            "{name} is a number whose bytes no server reads: convert it with int(), float() or bytes()"
        )));
    }
    let memory = Memory::of(object, Use::Read)?;
    if memory.len() >= SHARED_FROM {
        return Ok(Argument::Shared(memory.into_bytes()));
    }
    let copy = memory.as_slice().to_vec();
    drop(memory);
    memory::release_all(object.py());
    Ok(Argument::Owned(copy))
}

/// True for numbers of numpy's, and for arrays of numbers without dimensions. Byte strings of numpy's are none.
fn is_number_with_a_buffer(object: &Any) -> PyResult<bool> {
    let py = object.py();
    let Some(ndim) = object.getattr_opt(intern!(py, "ndim"))? else { return Ok(false) };
    let Some(dtype) = object.getattr_opt(intern!(py, "dtype"))? else { return Ok(false) };
    let Some(kind) = dtype.getattr_opt(intern!(py, "kind"))? else { return Ok(false) };
    let is_number = kind.extract::<char>().is_ok_and(|kind| "biufc".contains(kind));
    Ok(is_number && ndim.extract::<usize>().is_ok_and(|ndim| ndim == 0))
}

/// int or float, if the object is one of them. A bool is an int of Python's too, and rarely what is meant.
fn kind_of_number<'py>(object: &Any<'py>) -> Option<Bound<'py, PyType>> {
    if object.is_instance_of::<PyFloat>() {
        return Some(object.py().get_type::<PyFloat>());
    }
    let is_int = object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>();
    is_int.then(|| object.py().get_type::<PyInt>())
}
