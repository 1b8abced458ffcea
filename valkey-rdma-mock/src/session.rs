//! One connection's entry in the shared state.

use std::sync::{Arc, Mutex};

use valkey_rdma_transport::sync::lock;

use crate::state::State;

/// The mock's side of one connection. Dropping it removes the client from the state.
pub struct Session {
    pub(crate) id: u64,
    /// Whether the client has logged in or needs no password. Updated after each of its commands.
    pub(crate) authenticated: bool,
    state: Arc<Mutex<State>>,
}

impl Session {
    pub(crate) fn new(id: u64, authenticated: bool, state: Arc<Mutex<State>>) -> Self {
        Self { id, authenticated, state }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        lock(&self.state).forget_client(self.id);
    }
}
