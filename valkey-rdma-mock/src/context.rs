//! The argument of a command's function: shared state, and the client that runs the command.

use tokio::sync::oneshot;
use tokio::time::Instant;
use valkey_rdma_server::{Peer, Reply};

use crate::client::Client;
use crate::state::State;
use crate::store::Database;
use crate::transfer::Transfer;

/// The state that a command may read and change.
pub(crate) struct Context<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) peer: &'a mut Peer,
    /// The client that runs the command.
    pub(crate) client: u64,
    /// Commands of a transaction do not wait.
    pub(crate) in_transaction: bool,
    /// Set by a command that has to wait. Its reply is not sent then.
    pub(crate) wait: Option<Wait>,
    /// Set by a command that uses memory of its client. Its reply is not sent then.
    pub(crate) transfer: Option<Transfer>,
    /// Set by a command that stalls the whole server before its reply.
    pub(crate) stalled_until: Option<Instant>,
}

/// How long a command waits for its answer.
pub(crate) struct Wait {
    pub(crate) answer: oneshot::Receiver<Reply>,
    pub(crate) deadline: Option<Instant>,
}

impl Context<'_> {
    pub(crate) fn client(&mut self) -> &mut Client {
        self.state.clients.get_mut(&self.client).expect("a client is known as long as its session lives")
    }

    /// The database selected by this connection.
    pub(crate) fn database(&mut self) -> &mut Database {
        let index = self.client().database;
        &mut self.state.databases[index]
    }
}
