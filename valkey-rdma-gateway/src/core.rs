//! [`Core`]: what all clients and connections of a gateway share.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Instant, SystemTime};

use crate::clients::Clients;
use crate::limits::Limits;
use crate::refusal_log::RefusalLog;
use crate::seldom::Seldom;
use crate::services::Services;

pub(crate) struct Core {
    limits: RwLock<Arc<Limits>>,
    pub(crate) started: Instant,
    /// The same by the clock of the machine.
    pub(crate) started_at: SystemTime,
    /// Whether the last reload failed, so that the configuration before it holds.
    pub(crate) reload_failed: AtomicBool,
    pub(crate) services: Services,
    pub(crate) clients: Arc<Clients>,
    /// Bytes of replies that all clients together have not read.
    pub(crate) unread: Arc<AtomicUsize>,
    /// Bytes of commands that wait for their replies on shared connections.
    pub(crate) queued: Arc<AtomicUsize>,
    /// Which refused logins of clients are logged.
    pub(crate) refused_logins: Seldom,
    /// Which refused commands are logged.
    pub(crate) refusals: RefusalLog,
}

impl Core {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits: RwLock::new(Arc::new(limits)),
            started: Instant::now(),
            started_at: SystemTime::now(),
            reload_failed: AtomicBool::new(false),
            services: Services::default(),
            clients: Arc::default(),
            unread: Arc::default(),
            queued: Arc::default(),
            refused_logins: Seldom::default(),
            refusals: RefusalLog::default(),
        }
    }

    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(limits);
    }
}
