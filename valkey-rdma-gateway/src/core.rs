//! [`Core`]: what all clients and connections of a gateway share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant, SystemTime};

use valkey_rdma_transport::sync::{read, write};

use crate::config::limits::Limits;
use crate::front::descriptors::Budget;
use crate::front::refusals::Refusals;
use crate::observe::metrics::Services;
use crate::observe::refusal_log::RefusalLog;
use crate::observe::seldom::Seldom;
use crate::session::clients::Clients;

pub(crate) struct Core {
    limits: RwLock<Arc<Limits>>,
    pub(crate) started: Instant,
    /// When it was started, by the clock of the machine.
    pub(crate) started_at: SystemTime,
    /// Whether the last reload failed, so that the configuration before it holds.
    pub(crate) reload_failed: AtomicBool,
    /// Whether the gateway stops: its listeners are closed, and its clients get their last replies.
    pub(crate) draining: AtomicBool,
    pub(crate) services: Services,
    pub(crate) clients: Arc<Clients>,
    /// Shared with the task of each client, from its accept to its end.
    pub(crate) places: Arc<()>,
    /// What the limit of open files leaves for clients and servers.
    budget: RwLock<Budget>,
    /// File descriptors that connections to all servers may need, also to those that only clients from before a reload use.
    pub(crate) of_servers: AtomicUsize,
    pub(crate) refusing: Refusals,
    /// Limits the log lines about clients that are refused.
    pub(crate) refused_clients: Seldom,
    /// Limits the log lines about clients without a TLS connection.
    pub(crate) failed_handshakes: Seldom,
    /// Bytes of replies that all clients together have not read.
    pub(crate) unread: Arc<AtomicUsize>,
    /// Bytes of commands that wait for their replies on shared connections.
    pub(crate) queued: Arc<AtomicUsize>,
    /// Bytes of registered memory that direct transfers of all clients pass through.
    pub(crate) staged: Arc<AtomicUsize>,
    /// Limits the log lines about clients whose devices refuse direct transfers.
    pub(crate) refused_transfers: Seldom,
    /// Limits the log lines about refused logins of clients.
    pub(crate) refused_logins: Seldom,
    /// Limits the log lines about refused commands.
    pub(crate) refusals: RefusalLog,
}

impl Core {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits: RwLock::new(Arc::new(limits)),
            started: Instant::now(),
            started_at: SystemTime::now(),
            reload_failed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            services: Services::default(),
            clients: Arc::default(),
            places: Arc::default(),
            budget: RwLock::new(Budget::new(None, &[], 0, false)),
            of_servers: AtomicUsize::new(0),
            refusing: Refusals::default(),
            refused_clients: Seldom::every(APART),
            failed_handshakes: Seldom::every(APART),
            unread: Arc::default(),
            queued: Arc::default(),
            staged: Arc::default(),
            refused_transfers: Seldom::every(APART),
            refused_logins: Seldom::default(),
            refusals: RefusalLog::default(),
        }
    }

    pub(crate) fn limits(&self) -> Arc<Limits> {
        read(&self.limits).clone()
    }

    /// How many clients there may be at once.
    pub(crate) fn most_clients(&self) -> usize {
        self.limits().clients.min(self.affordable_clients())
    }

    /// How many clients the limit of open files allows, beside the servers that there are now.
    pub(crate) fn affordable_clients(&self) -> usize {
        read(&self.budget).clients(self.of_servers.load(Ordering::Relaxed))
    }

    /// Whether there are as many clients as there may be. One share of the places is this one's own.
    pub(crate) fn is_full(&self) -> bool {
        Arc::strong_count(&self.places) > self.most_clients()
    }

    pub(crate) fn set_limits(&self, limits: Limits, budget: Budget) {
        *write(&self.budget) = budget;
        *write(&self.limits) = Arc::new(limits);
    }
}

/// Between two lines of the log about refused clients, about those without a TLS connection, or about refused transfers.
const APART: Duration = Duration::from_secs(5);
