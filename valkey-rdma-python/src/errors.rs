//! Errors of the Rust client as Python exceptions, which `valkey_rdma/errors.py` defines.

use std::io;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use valkey_rdma_client::{ClusterError, ConnectCause, Error, Fate, LostCause, ServerError};

use crate::python::Answer;

/// A failed operation.
#[derive(Debug)]
pub(crate) enum Failure {
    Client(Error),
    /// A value does not fit into the memory for it.
    Size {
        index: usize,
        len: usize,
        room: usize,
    },
    /// The whole operation took longer than the caller allows. It may have run.
    Late(Duration, Fate),
    Closed,
    /// The client was closed while the operation ran, or the caller cancelled it, who then sees no failure.
    Stopped,
    /// Python exits, and has ended the background threads.
    Exiting,
    /// The client was made before this process was forked.
    Forked,
    /// A signal handler forked this process during the call.
    ForkedMeanwhile,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        Self::Client(error.into())
    }
}

impl Failure {
    /// The text of the exception.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Client(error) => client_text(error),
            Self::Size { index, len, room } => {
                format!("the value of key {index} has {len} bytes, and its buffer has {room}")
            }
            Self::Late(limit, fate) => format!("not done within {} s; {fate}", limit.as_secs_f64()),
            Self::Closed => "the client is closed".to_owned(),
            Self::Stopped => format!("the client was closed before the reply; {}", Fate::MayHaveRun),
            Self::Exiting => "Python is exiting, which has closed the client".to_owned(),
            Self::Forked => {
                "the client was made before this process was forked: make another one in the child".to_owned()
            }
            Self::ForkedMeanwhile => format!(
                "a signal handler forked this process during the call, which goes on in the parent only: make another client in the child; {}",
                Fate::MayHaveRun
            ),
        }
    }

    fn fate(&self) -> Fate {
        match self {
            Self::Client(error) => error.fate(),
            Self::Size { .. } => Fate::Answered,
            Self::Late(_, fate) => *fate,
            Self::Stopped | Self::ForkedMeanwhile => Fate::MayHaveRun,
            Self::Closed | Self::Exiting | Self::Forked => Fate::NotSent,
        }
    }

    /// The name of its class.
    fn class(&self) -> &'static str {
        match self {
            Self::Client(Error::Endpoint(_)) => "UrlError",
            Self::Client(Error::Connect(error)) if is_late(error.cause()) => "ConnectTimeoutError",
            Self::Client(Error::Connect(_)) => "ConnectError",
            Self::Client(Error::Server(_) | Error::Aborted(_)) => "ServerError",
            // The client was closed while the call was on its way.
            Self::Client(Error::Lost(lost)) if matches!(lost.cause(), LostCause::Closed) => "ClosedError",
            Self::Client(Error::Lost(_)) => "LostError",
            Self::Client(Error::TimedOut(_)) | Self::Late(..) => "DeadlineError",
            Self::Client(Error::Refused(_)) => "RefusedError",
            Self::Client(Error::Unexpected(_)) => "UnexpectedReplyError",
            Self::Size { .. } => "SizeError",
            Self::Closed | Self::Stopped | Self::Exiting => "ClosedError",
            Self::Forked | Self::ForkedMeanwhile => "ForkedError",
            Self::Client(Error::Cluster(error)) => match error {
                ClusterError::NotACluster { .. }
                | ClusterError::BadMap { .. }
                | ClusterError::Unreachable { .. } => "ConnectError",
                ClusterError::CrossSlot { .. } | ClusterError::NoRoute { .. } => "RefusedError",
                _ => "ClusterError",
            },
            Self::Client(_) => "Error",
        }
    }

    /// The exception.
    pub(crate) fn exception<'py>(&self, py: Python<'py>) -> Answer<'py> {
        let exception = classes(py)?.getattr(self.class())?.call1((self.text(),))?;
        exception.setattr("fate", word(self.fate()))?;
        if let Self::Client(error) = self
            && let Some(server) = error.server()
        {
            exception.setattr("code", &server.code)?;
        }
        if let Self::Client(Error::Connect(error)) = self
            && let Some(number) = errno(error.cause())
        {
            exception.setattr("errno", number)?;
        }
        Ok(exception)
    }

    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        self.exception(py).map_or_else(|error| error, PyErr::from_value)
    }
}

/// True if a connect ran out of time.
fn is_late(cause: &ConnectCause) -> bool {
    match cause {
        ConnectCause::Deadline { .. } => true,
        ConnectCause::Io(error) => error.kind() == io::ErrorKind::TimedOut,
        ConnectCause::Fallback { tcp, .. } => is_late(tcp),
        _ => false,
    }
}

/// The number that the operating system gave to what failed.
fn errno(cause: &ConnectCause) -> Option<i32> {
    let error: &(dyn std::error::Error + 'static) = match cause {
        ConnectCause::Resolve(error) | ConnectCause::Io(error) | ConnectCause::Socket(error) => &**error,
        ConnectCause::Device(error) => &**error,
        ConnectCause::Fallback { tcp, .. } => return errno(tcp),
        _ => return None,
    };
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.filter_map(|error| error.downcast_ref::<io::Error>()).find_map(io::Error::raw_os_error)
}

/// The module of the exceptions. It is imported with this one: while Python exits, nothing can be imported.
pub(crate) fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let classes = CLASSES.get_or_try_init(py, || py.import("valkey_rdma.errors").map(Bound::unbind))?;
    Ok(classes.bind(py))
}

/// The text of an error of the Rust client. Where it advises a function of that client, the advice is what Python has instead.
fn client_text(error: &Error) -> String {
    let text = format!("{error:#}");
    // What a Rust program can do instead stands in parentheses.
    if let (Error::Endpoint(_), Some((why, _))) = (error, text.split_once(" (a Rust program")) {
        return why.to_owned();
    }
    let has_advice = match error {
        Error::Refused(_) | Error::Cluster(ClusterError::NoRoute { .. }) => true,
        // The rest is the server's own text.
        Error::Server(_) => text.ends_with("Config::name"),
        _ => false,
    };
    if !has_advice {
        return text;
    }
    match text.rsplit_once("; ") {
        Some((why, advice)) if advice.contains("::") => format!("{why}; {}", python_advice(advice)),
        _ => text,
    }
}

fn python_advice(rust: &str) -> &'static str {
    let known = ADVICE.iter().find(|(function, _)| rust.split([' ', ',']).any(|word| word == *function));
    known.map_or("there is no call for it in Python yet", |(_, python)| python)
}

/// Functions of the Rust client that error texts name, and what to do in Python.
const ADVICE: [(&str, &str); 6] = [
    ("Client::subscriber", "use subscriber()"),
    ("Client::close", "use close()"),
    ("Client::pipeline", "use pipeline()"),
    ("Client::blocking_command", "use blocking_command()"),
    ("Client::transaction", "send MULTI to EXEC in one pipeline()"),
    ("Config::name", "make the client with name=..."),
];

/// How Python code sees a fate.
fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::NotSent => "not-sent",
        Fate::MayHaveRun => "may-have-run",
        Fate::Answered => "answered",
    }
}
