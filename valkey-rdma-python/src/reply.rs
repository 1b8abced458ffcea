//! Replies as Python objects.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyBaseException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PySet, PyType};
use valkey_rdma_client::{Error, UnexpectedReply, Value};

use crate::errors::Failure;
use crate::python::{Answer, Any};

/// Strings are bytes, maps are dicts, sets are sets. Members that cannot be hashed turn a map into a list of pairs, and a set into a
/// list. Errors within a reply are exceptions that are not raised. So are numbers of more digits than Python converts: other members, and
/// the other replies to a pipeline, are good.
fn to_python<'py>(py: Python<'py>, value: Value) -> Answer<'py> {
    match value {
        Value::Nil => Ok(py.None().into_bound(py)),
        Value::Int(number) => number.into_bound_py_any(py),
        Value::Double(number) => number.into_bound_py_any(py),
        Value::Bool(truth) => truth.into_bound_py_any(py),
        Value::Simple(bytes) | Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => {
            Ok(PyBytes::new(py, &bytes).into_any())
        }
        Value::BigNumber(digits) => {
            let number = py.get_type::<PyInt>().cast::<PyType>()?.call1((String::from_utf8_lossy(&digits),));
            match number {
                Err(error) if error.is_instance_of::<PyValueError>(py) => {
                    let error = UnexpectedReply::new(SHORTER, Value::BigNumber(digits).describe());
                    Failure::from(Error::from(error)).exception(py)
                }
                number => number,
            }
        }
        Value::Array(members) | Value::Push(members) => list(py, members),
        Value::Set(members) => {
            let members = list(py, members)?;
            or_unhashable(py, PySet::empty(py)?, members, |set, members| {
                set.call_method1("update", (members,)).map(drop)
            })
        }
        Value::Map(pairs) => {
            let pairs = pairs
                .into_iter()
                .map(|(key, value)| (to_python(py, key)?, to_python(py, value)?).into_bound_py_any(py));
            let pairs = PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)?.into_any();
            or_unhashable(py, PyDict::new(py), pairs, |dict, pairs| {
                dict.call_method1("update", (pairs,)).map(drop)
            })
        }
        Value::Error(error) => Failure::from(error).exception(py),
    }
}

/// The reply to a command. An error is raised.
pub(crate) fn one_to_python(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    Ok(or_raised(to_python(py, value)?)?.unbind())
}

/// The replies to a pipeline. An error is raised, or an exception in its place.
pub(crate) fn list_to_python(
    py: Python<'_>,
    replies: Vec<Result<Value, Error>>,
    raise_on_error: bool,
) -> PyResult<Py<PyAny>> {
    let replies = replies.into_iter().map(|reply| match reply {
        Ok(value) if raise_on_error => or_raised(to_python(py, value)?),
        Ok(value) => to_python(py, value),
        Err(error) if raise_on_error => Err(Failure::from(error).raise(py)),
        Err(error) => Failure::from(error).exception(py),
    });
    replies.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
}

/// Raises a reply that is an exception.
fn or_raised(reply: Any<'_>) -> Answer<'_> {
    if reply.is_instance_of::<PyBaseException>() { Err(PyErr::from_value(reply)) } else { Ok(reply) }
}

fn list<'py>(py: Python<'py>, members: Vec<Value>) -> Answer<'py> {
    let members = members.into_iter().map(|member| to_python(py, member)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, members)?.into_any())
}

/// The container filled with the members; or the list of members, if one of them cannot be hashed.
fn or_unhashable<'py, C>(
    py: Python<'py>,
    container: Bound<'py, C>,
    members: Any<'py>,
    fill: impl FnOnce(&Bound<'py, C>, &Any) -> PyResult<()>,
) -> Answer<'py> {
    match fill(&container, &members) {
        Ok(()) => Ok(container.into_any()),
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(members),
        Err(error) => Err(error),
    }
}

/// What a big number should have been.
const SHORTER: &str = "at most as many digits as sys.get_int_max_str_digits() allows";
