//! [`Memory`]: the bytes of a Python object, through the buffer protocol. All unsafe code of this crate is here.
//!
//! The protocol became part of Python's stable ABI with 3.11. The symbols and the layout of `Py_buffer` have been the same since
//! Python 3.3, so they are declared here and one wheel serves 3.10 as well.

use std::any::Any as AnyType;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::prelude::*;
use valkey_rdma_transport::ForeignBytes;
use valkey_rdma_transport::sync::lock;

use crate::python::{Answer, Any};
use crate::runtime;

/// Python's `Py_buffer`.
///
/// Source: `Include/cpython/object.h` of Python 3.10, `Include/pybuffer.h` of later ones.
#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut PyObject,
    len: Py_ssize_t,
    itemsize: Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut Py_ssize_t,
    strides: *mut Py_ssize_t,
    suboffsets: *mut Py_ssize_t,
    internal: *mut c_void,
}

// SAFETY: signatures as in `Include/pybuffer.h`; libpython exports these symbols in every version since 3.3.
unsafe extern "C" {
    fn PyObject_CheckBuffer(object: *mut PyObject) -> c_int;
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// One block of bytes, which may be read. Source: `PyBUF_ND` in `pybuffer.h`.
const BLOCK: c_int = 0x0008;
/// With a description of its items. Source: `PyBUF_FORMAT` in `pybuffer.h`.
const FORMAT: c_int = 0x0004;
/// It may be written as well. Source: `PyBUF_WRITABLE` in `pybuffer.h`.
const WRITABLE: c_int = 0x0001;

/// What an operation does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    /// Nothing: it stays where it is, and other operations use it meanwhile.
    Keep,
}

/// The bytes of a Python object, in use by an operation of this module.
///
/// While it exists, the object's buffer is exported: Python keeps the memory where it is, and objects that could resize or free it
/// raise BufferError. Operations of this module that write share it with no other.
pub(crate) struct Memory {
    /// Boxed, because exporters may keep its address. Taken only by `drop`.
    view: Option<Box<View>>,
    /// None for memory of length 0.
    claim: Option<Claim>,
}

// SAFETY: threads other than the one that made it only use its address and length, which do not change. Python's own functions are
// called with the interpreter attached, in `of` and `release_all`.
unsafe impl Send for Memory {}
// SAFETY: as for Send.
unsafe impl Sync for Memory {}

impl Memory {
    /// Exports the object's memory.
    ///
    /// # Errors
    /// TypeError if the object has no buffer, or one of references to objects; BufferError if the memory is read-only but must be written, not contiguous, or used
    /// by another operation that writes or that this one would disturb.
    pub(crate) fn of(object: &Any, purpose: Use) -> PyResult<Self> {
        // Torch's tensors have no buffer, but arrays that share their memory.
        let shared = if has_buffer(object) { None } else { Some(bytes_of_tensor(object)?) };
        let object = shared.as_ref().unwrap_or(object);
        let flags = if purpose == Use::Write { BLOCK | WRITABLE } else { BLOCK };
        let view = match export(object, flags | FORMAT) {
            Ok(view) => view,
            // Some items have no description, such as numpy's dates and ml_dtypes' numbers.
            Err(_) if !has_objects(object)? => export(object, flags)?,
            Err(error) => return Err(error),
        };
        let mut memory = Self { view: Some(view), claim: None };
        if memory.holds_objects() {
            drop(memory);
            release_all(object.py());
            return Err(PyTypeError::new_err(OBJECTS));
        }
        if purpose != Use::Keep && !memory.is_empty() {
            memory.claim = claims().claim(memory.range(), purpose);
            if memory.claim.is_none() {
                drop(memory);
                release_all(object.py());
                return Err(PyBufferError::new_err(IN_USE));
            }
        }
        Ok(memory)
    }

    pub(crate) fn len(&self) -> usize {
        self.view().len as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.view().len == 0
    }

    /// True if the items are, or have, references to Python objects: their bytes mean nothing to others, and must not be written.
    fn holds_objects(&self) -> bool {
        let format = self.view().format;
        if format.is_null() {
            return false;
        }
        // SAFETY: not null, so it is a string that ends with NUL and lives as long as the export, by the buffer protocol.
        let format = unsafe { CStr::from_ptr(format) };
        // Names of fields are between colons.
        let items = format.to_bytes().split(|byte| *byte == b':').step_by(2);
        items.flatten().any(|byte| *byte == b'O')
    }

    fn view(&self) -> &View {
        self.view.as_ref().expect("taken only by drop")
    }

    /// The addresses of the bytes.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.view().buf.addr();
        start..start + self.len()
    }

    /// True if its exporter lets it be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.view().readonly == 0
    }

    /// The memory in parts of at most `most` bytes. Only for memory made with [`Use::Keep`].
    pub(crate) fn into_parts(self, most: usize) -> Vec<Part> {
        let owner = Arc::new(self);
        let (start, len) = (owner.view().buf.cast::<u8>(), owner.len());
        let part = |offset| Part {
            start: start.wrapping_add(offset),
            len: most.min(len - offset),
            owner: owner.clone(),
        };
        (0..len).step_by(most).map(part).collect()
    }

    /// The memory, for reading. Empty for memory made with [`Use::Keep`].
    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.claim.is_none() {
            return &[];
        }
        // SAFETY: a contiguous export is one block of `len` bytes at `buf`, which stays until the release in `release_all`, after this
        // value was dropped. No operation of this module writes it meanwhile: see `Claims`. A Python thread that writes it all the
        // same changes which bytes are sent, as with `socket.send`.
        unsafe { slice::from_raw_parts(self.view().buf.cast(), self.len()) }
    }

    /// The memory, for writing. Only for memory made with [`Use::Write`].
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        assert!(self.view().readonly == 0, "exported for reading only");
        if self.claim.is_none() {
            return &mut [];
        }
        // SAFETY: as in `as_slice`, and the export is WRITABLE. `&mut self` and `Claims` make it the only slice of ours. A Python
        // thread that reads or writes it meanwhile sees or leaves arbitrary bytes, as with `socket.recv_into`.
        unsafe { slice::from_raw_parts_mut(self.view().buf.cast(), self.len()) }
    }

    /// The memory as bytes that an operation sends. It is released when the last clone is dropped.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(Reading(self))
    }
}

/// Memory that is read.
struct Reading(Memory);

impl AsRef<[u8]> for Reading {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _no_fork = runtime::no_fork_meanwhile();
        if let Some(claim) = self.claim {
            claims().give_back(claim);
        }
        released().extend(self.view.take().map(Released));
    }
}

/// A part of writable memory that is registered for direct transfers. Its bytes are used only by an operation that has a claim on them.
pub(crate) struct Part {
    start: *mut u8,
    len: usize,
    owner: Arc<Memory>,
}

// SAFETY: it is used as a `Box<[u8]>` would be, and its bytes are tied to no thread. `owner` may be dropped anywhere.
unsafe impl Send for Part {}
// SAFETY: shared, it is only read.
unsafe impl Sync for Part {}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a part of one block that stays until `owner` is dropped. No other part of this registration has a byte of it:
        // `into_parts` consumes the memory, and `split_off` and `unsplit` move bytes. Only an operation that has a claim on the bytes takes
        // them, of one registration, and uses its own `Memory` after it has given them back. A Python thread that writes them all the same
        // changes which bytes are sent.
        unsafe { slice::from_raw_parts(self.start, self.len) }
    }
}

impl AsMut<[u8]> for Part {
    fn as_mut(&mut self) -> &mut [u8] {
        assert!(self.owner.is_writable(), "registered for reading only");
        // SAFETY: as in `as_ref`, the exporter lets it be written, and a device in software writes in the place of an adapter, for an
        // operation whose claim excludes all others. A Python thread meanwhile sees or leaves arbitrary bytes.
        unsafe { slice::from_raw_parts_mut(self.start, self.len) }
    }
}

// SAFETY: as in `as_ref` and `as_mut`. The export that `owner` has keeps the memory where it is.
unsafe impl ForeignBytes for Part {
    fn start(&self) -> *mut u8 {
        self.start
    }

    fn size(&self) -> usize {
        self.len
    }

    fn owner(&self) -> Arc<dyn AnyType + Send + Sync> {
        self.owner.clone()
    }

    fn split_off(&mut self, at: usize) -> Box<dyn ForeignBytes> {
        assert!(at <= self.len, "split at {at} of {} bytes", self.len);
        let rest = Self { start: self.start.wrapping_add(at), len: self.len - at, owner: self.owner.clone() };
        self.len = at;
        Box::new(rest)
    }

    fn unsplit(&mut self, next: Box<dyn ForeignBytes>) {
        let next: Box<dyn AnyType> = next;
        let next = next.downcast::<Self>().expect("all parts are of this type");
        let follows =
            self.start.wrapping_add(self.len) == next.start && Arc::ptr_eq(&self.owner, &next.owner);
        assert!(follows, "it lies elsewhere");
        self.len += next.len;
    }
}

/// An export that no operation uses any more.
struct Released(Box<View>);

// SAFETY: moved only; used in `release_all`, with the interpreter attached.
unsafe impl Send for Released {}

/// Exports to be released by a thread that has the interpreter: operations end on threads that never do.
static RELEASED: Mutex<Vec<Released>> = Mutex::new(Vec::new());

fn released() -> MutexGuard<'static, Vec<Released>> {
    lock(&RELEASED)
}

/// Releases the memory of operations that have ended. Every entry point calls it.
pub(crate) fn release_all(_py: Python<'_>) {
    let views = std::mem::take(&mut *released());
    for mut view in views {
        // SAFETY: filled by a successful `PyObject_GetBuffer` and released once; the interpreter is attached.
        unsafe { PyBuffer_Release(&raw mut *view.0) };
    }
}

/// The memory that operations use now. Any number may read the same bytes; one that writes is alone. Batches have thousands of buffers, so
/// these are ordered.
struct Claims {
    /// Begin and end. They do not overlap.
    writes: BTreeMap<usize, usize>,
    /// Begin and number, and end.
    reads: BTreeMap<(usize, u64), usize>,
    /// The longest of `reads` since there were none: no other that begins further ahead of an address reaches it.
    longest_read: usize,
    next: u64,
}

/// A place in [`Claims`].
#[derive(Clone, Copy)]
enum Claim {
    Write { start: usize },
    Read { start: usize, number: u64 },
}

static CLAIMS: Mutex<Claims> =
    Mutex::new(Claims { writes: BTreeMap::new(), reads: BTreeMap::new(), longest_read: 0, next: 0 });

fn claims() -> MutexGuard<'static, Claims> {
    lock(&CLAIMS)
}

impl Claims {
    /// `None`: another operation uses some of these bytes in a way that excludes this one.
    fn claim(&mut self, range: Range<usize>, purpose: Use) -> Option<Claim> {
        let Range { start, end } = range;
        // Of those that begin before the end, the last one ends last.
        if self.writes.range(..end).next_back().is_some_and(|(_, other)| *other > start) {
            return None;
        }
        if purpose == Use::Write {
            let near = (start.saturating_sub(self.longest_read), 0)..(end, 0);
            if self.reads.range(near).any(|(_, other)| *other > start) {
                return None;
            }
            self.writes.insert(start, end);
            return Some(Claim::Write { start });
        }
        self.next += 1;
        self.reads.insert((start, self.next), end);
        self.longest_read = self.longest_read.max(end - start);
        Some(Claim::Read { start, number: self.next })
    }

    fn give_back(&mut self, claim: Claim) {
        match claim {
            Claim::Write { start } => drop(self.writes.remove(&start)),
            Claim::Read { start, number } => drop(self.reads.remove(&(start, number))),
        }
        if self.reads.is_empty() {
            self.longest_read = 0;
        }
    }
}

/// Frees all memory for other operations, because those that use it do not run in this process.
pub(crate) fn forget_claims() {
    let mut claims = claims();
    claims.writes.clear();
    claims.reads.clear();
}

/// Exports the memory of an object.
fn export(object: &Any, flags: c_int) -> PyResult<Box<View>> {
    let mut view = Box::new(MaybeUninit::<View>::zeroed());
    // SAFETY: `object` is alive and the interpreter attached, both by `Bound`; `view` has room for the struct.
    if unsafe { PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) } != 0 {
        return Err(as_buffer_error(object, PyErr::fetch(object.py())));
    }
    // SAFETY: zeroed is a valid value of every field, and a successful call has filled it.
    Ok(unsafe { view.assume_init() })
}

/// True if an array of numpy's says that its items have references to objects.
fn has_objects(object: &Any) -> PyResult<bool> {
    let Some(kind) = object.getattr_opt("dtype")? else { return Ok(false) };
    kind.getattr_opt("hasobject")?.map_or(Ok(false), |has| has.is_truthy())
}

pub(crate) fn has_buffer(object: &Any) -> bool {
    // SAFETY: `object` is alive and the interpreter attached.
    unsafe { PyObject_CheckBuffer(object.as_ptr()) == 1 }
}

/// An array of the bytes of a torch tensor in this machine's memory.
fn bytes_of_tensor<'py>(object: &Any<'py>) -> Answer<'py> {
    let kind = object.get_type();
    if !object.hasattr("untyped_storage")? {
        let name = kind.name()?;
        return Err(PyTypeError::new_err(format!("a bytes-like object is required, not {name}")));
    }
    if !object.call_method0("is_contiguous")?.extract::<bool>()? {
        return Err(PyBufferError::new_err("the tensor is not contiguous"));
    }
    let bytes = object.py().import("torch")?.getattr("uint8")?;
    let flat = object.call_method0("detach").and_then(|tensor| tensor.call_method1("view", (-1,)));
    let array = flat.and_then(|flat| flat.call_method1("view", (bytes,))?.call_method0("numpy"));
    array.map_err(|error| as_buffer_error(object, error))
}

/// Exporters raise what they like; ours is BufferError, with theirs as the cause.
fn as_buffer_error(object: &Any, error: PyErr) -> PyErr {
    let py = object.py();
    if error.is_instance_of::<PyBufferError>(py) {
        return error;
    }
    let ours = PyBufferError::new_err(error.value(py).to_string());
    ours.set_cause(py, Some(error));
    ours
}

const OBJECTS: &str =
    "the memory holds references to Python objects, whose addresses mean nothing to a server";
const IN_USE: &str = "the memory is in use by another operation of valkey_rdma";
