//! [`CommandName`]: what is kept of a command for the text of an error about its reply.

pub(crate) use valkey_rdma_resp::CommandName;

use super::Command;

impl Command {
    /// A copy of the name that outlives the command. Kept where the caller's future is: a query allocates no more for it.
    pub(crate) fn kept_name(&self) -> CommandName {
        CommandName::new(self.words().next().unwrap_or_default())
    }
}
