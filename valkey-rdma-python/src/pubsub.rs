//! [`Shared`]: published messages, for the calls of one Python object.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use valkey_rdma_client::pubsub::{Event, Subscription};
use valkey_rdma_transport::sync::lock;

use crate::errors::Failure;

/// A subscriber that the calls of one Python object share.
pub(crate) struct Shared {
    /// `None` once closed.
    subscriptions: tokio::sync::Mutex<Option<valkey_rdma_client::Subscriber>>,
    /// How many calls other than `next` wait for the lock, which `next` holds until there is an event.
    wanted: watch::Sender<usize>,
    /// Events that a cancelled call had taken. They come first.
    returned: Mutex<VecDeque<Event>>,
    /// An event was returned while another call waits.
    comes_back: Notify,
}

impl Shared {
    pub(crate) fn new(subscriptions: valkey_rdma_client::Subscriber) -> Arc<Self> {
        Arc::new(Self {
            subscriptions: tokio::sync::Mutex::new(Some(subscriptions)),
            wanted: watch::Sender::default(),
            returned: Mutex::default(),
            comes_back: Notify::new(),
        })
    }

    /// Subscribes, or ends subscriptions.
    pub(crate) async fn order(
        self: Arc<Self>,
        kind: Subscription,
        subscribe: bool,
        names: Vec<bytes::Bytes>,
    ) -> Result<(), Failure> {
        let subscriptions = self.take_over().await;
        let subscriptions = subscriptions.as_ref().ok_or(Failure::Closed)?;
        match subscribe {
            true => subscriptions.subscribe(kind, names).await?,
            false => subscriptions.unsubscribe(kind, names).await?,
        }
        Ok(())
    }

    /// The next event. `None`: there was none within the limit.
    pub(crate) async fn next(self: Arc<Self>, limit: Option<Duration>) -> Result<Option<Event>, Failure> {
        let next = self.wait_for_event();
        match limit {
            None => next.await.map(Some),
            Some(limit) => timeout(limit, next).await.map_or(Ok(None), |event| event.map(Some)),
        }
    }

    async fn wait_for_event(&self) -> Result<Event, Failure> {
        loop {
            self.until_wanted(false).await;
            let mut subscriptions = self.subscriptions.lock().await;
            if let Some(event) = self.returned().pop_front() {
                return Ok(event);
            }
            let subscriptions = subscriptions.as_mut().ok_or(Failure::Closed)?;
            tokio::select! {
                biased;
                () = self.comes_back.notified() => {}
                event = subscriptions.next() => return Ok(event?),
                () = self.until_wanted(true) => {}
            }
        }
    }

    /// Returns when the lock is wanted by a call other than `next`, or when it is not.
    async fn until_wanted(&self, wanted: bool) {
        // It fails only without the sender.
        let _ = self.wanted.subscribe().wait_for(|calls| (*calls > 0) == wanted).await;
    }

    /// Locks the subscriptions, which a waiting call of `next` gives away.
    async fn take_over(&self) -> tokio::sync::MutexGuard<'_, Option<valkey_rdma_client::Subscriber>> {
        let _wanted = Wanted::new(&self.wanted);
        self.subscriptions.lock().await
    }

    /// Takes back an event that its caller did not want any more.
    pub(crate) fn give_back(&self, event: Event) {
        self.returned().push_back(event);
        self.comes_back.notify_one();
    }

    pub(crate) async fn close(self: Arc<Self>) -> Result<(), Failure> {
        self.take_over().await.take();
        Ok(())
    }

    fn returned(&self) -> MutexGuard<'_, VecDeque<Event>> {
        lock(&self.returned)
    }
}

/// A call that waits for the lock.
struct Wanted<'a>(&'a watch::Sender<usize>);

impl<'a> Wanted<'a> {
    fn new(calls: &'a watch::Sender<usize>) -> Self {
        calls.send_modify(|calls| *calls += 1);
        Self(calls)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

pub(crate) fn subscription(kind: &str) -> PyResult<Subscription> {
    match kind {
        "channel" => Ok(Subscription::Channel),
        "pattern" => Ok(Subscription::Pattern),
        "shard" => Ok(Subscription::Shard),
        other => Err(PyValueError::new_err(format!("kind must be channel, pattern or shard, not {other:?}"))),
    }
}

pub(crate) fn event_to_python(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    match event {
        Event::Message(message) => {
            dict.set_item("type", "message")?;
            dict.set_item("channel", PyBytes::new(py, &message.channel))?;
            dict.set_item("pattern", message.pattern.map(|pattern| PyBytes::new(py, &pattern)))?;
            dict.set_item("payload", PyBytes::new(py, &message.payload))?;
        }
        Event::Missed(count) => {
            dict.set_item("type", "missed")?;
            dict.set_item("count", count)?;
        }
        Event::Reconnected => dict.set_item("type", "reconnected")?,
        Event::Refused { name, error, .. } => {
            dict.set_item("type", "refused")?;
            dict.set_item("name", PyBytes::new(py, &name))?;
            dict.set_item("error", Failure::from(error).exception(py)?)?;
        }
        Event::LoginRefused { error } => {
            dict.set_item("type", "login_refused")?;
            dict.set_item("error", Failure::from(error).exception(py)?)?;
        }
        other => dict.set_item("type", format!("{other:?}"))?,
    }
    dict.into_py_any(py)
}
