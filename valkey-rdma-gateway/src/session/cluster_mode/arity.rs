//! Commands with a wrong number of words. A server looks at that before it looks at the state of a client, and so does the gateway.

use bytes::Bytes;
use valkey_rdma_resp::{Reply, words};

use super::super::{Closed, Session};
use super::{Begun, Queued};
use crate::command::class::{Class, Local, State};
use crate::session::answers::wrong_arity;

/// Whether a server refuses a command that begins or ends a state, because of the number of its words.
pub(super) fn has_wrong_arity(class: Class, command: &[u8]) -> bool {
    let has_arguments = words(command).nth(1).is_some();
    match class {
        Class::Local(Local::WrongArity) => true,
        Class::State(State::Exec) => has_arguments,
        Class::State(State::Watch | State::Subscribe(_)) => !has_arguments,
        _ => false,
    }
}

impl Session {
    /// Refuses such a command. EXEC ends the transaction and what the client watches all the same. Any other makes the transaction fail.
    pub(super) async fn put_wrong_arity(
        &mut self,
        class: Class,
        command: &Bytes,
        begun: &mut Begun,
    ) -> Result<(), Closed> {
        if class == Class::State(State::Exec) {
            *begun = Begun::default();
            self.put(&Reply::error(EXEC_WITH_ARGUMENTS));
            return Ok(());
        }
        begun.transaction.iter_mut().for_each(Queued::fail);
        if let Class::Local(local) = class {
            return self.answer(local, command).await;
        }
        self.put(&wrong_arity(command));
        Ok(())
    }
}

const EXEC_WITH_ARGUMENTS: &str =
    "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
