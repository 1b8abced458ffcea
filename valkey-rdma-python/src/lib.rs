//! The native part of the Python package `valkey_rdma`.
//!
//! Background threads (`runtime`) run the Rust client and never touch Python: what they finish waits in a queue (`completions`), and
//! the memory that they no longer use waits to be released (`memory`) until a thread of Python's comes by. So Python can exit at any
//! time, and a slow program slows only itself.
//!
//! | module | purpose |
//! |---|---|
//! | `memory` | buffers of Python objects; all unsafe code |
//! | `engine` | commands, to one server or a cluster; nothing of Python |
//! | `transfer`, `lane_sets`, `lanes` | batches of large values, and their connections; nothing of Python but its memory |
//! | `direct`, `registration` | values in registered memory, which servers read and write themselves |
//! | `base_client`, `subscriber` | what the classes for threads and those for asyncio have in common: each method is there once |
//! | `caller` | the difference: a call waits, or returns a future |
//! | `client`, `async_client`, `lmcache`, `bridge` | the classes |
//! | `credentials` | the program's provider of user and password |
//! | `connected`, `pubsub` | what `__init__` makes of an object; what a subscriber has received |
//! | `python`, `arguments`, `batch`, `options`, `reply`, `errors`, `describe` | from Python's objects and back |
//! | `runtime`, `reactor`, `replaced`, `sync`, `fork`, `local`, `completions`, `event_loop` | threads, processes, and asyncio |
#![deny(unsafe_code)]

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

mod arguments;
mod async_client;
mod base_client;
mod batch;
mod bridge;
mod caller;
mod client;
mod completions;
mod connected;
mod credentials;
mod describe;
mod direct;
mod engine;
mod errors;
mod event_loop;
mod fork;
mod lane_sets;
mod lanes;
mod lmcache;
mod local;
#[expect(unsafe_code, reason = "Python's buffer protocol")]
mod memory;
mod options;
mod pubsub;
mod python;
mod reactor;
mod registration;
mod replaced;
mod reply;
mod runtime;
mod subscriber;
mod traffic;
mod transfer;

/// The native part of `valkey_rdma`.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::async_client::{AsyncClient, AsyncClusterClient};
    #[pymodule_export]
    use super::base_client::BaseClient;
    #[pymodule_export]
    use super::base_client::pipeline::{AsyncPipeline, BasePipeline, Pipeline};
    #[pymodule_export]
    use super::bridge::{check_url, connect_socket, connect_socket_async, password_in_file, url_options};
    #[pymodule_export]
    use super::client::{Client, ClusterClient};
    #[pymodule_export]
    use super::lmcache::LMCacheClient;
    #[pymodule_export]
    use super::registration::Registration;
    #[pymodule_export]
    use super::subscriber::{AsyncSubscriber, BaseSubscriber, Subscriber};

    /// Refuses all interpreters but the first that imports this module. The process has one set of background threads, and the end of any
    /// interpreter would end them for all.
    ///
    /// # Errors
    /// ImportError in the others.
    fn check_interpreter(py: Python<'_>) -> PyResult<()> {
        /// The module `builtins` of the first interpreter. It is never freed, so no other object gets its address.
        static FIRST: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let builtins = py.import("builtins")?;
        if FIRST.get_or_init(py, || builtins.clone().unbind()).is(&builtins) {
            return Ok(());
        }
        Err(PyImportError::new_err(
            "another interpreter of this process has imported valkey_rdma, which works in one only: import it in the main interpreter \
             and nowhere else, or use processes (mod_wsgi: WSGIApplicationGroup %{GLOBAL})",
        ))
    }

    /// Asks Python to report forks and its exit, and imports what calls during that need.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        check_interpreter(py)?;
        let hooks = pyo3::types::PyDict::new(py);
        hooks.set_item("before", wrap_pyfunction!(fork::before_fork, py)?)?;
        hooks.set_item("after_in_parent", wrap_pyfunction!(fork::after_fork_in_parent, py)?)?;
        hooks.set_item("after_in_child", wrap_pyfunction!(fork::after_fork_in_child, py)?)?;
        py.import("os")?.getattr("register_at_fork")?.call((), Some(&hooks))?;
        py.import("atexit")?.call_method1("register", (wrap_pyfunction!(fork::at_exit, py)?,))?;
        errors::classes(py)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
