//! RESP as only a client needs it: commands encoded once, what Valkey says of them, and what may travel on a shared
//! connection. Decoding and values are `valkey-rdma-resp`'s.

mod command;
pub(crate) mod command_table;
mod encode;
mod policy;

use valkey_rdma_resp::{ServerError, Value};

pub(crate) use self::command::CommandName;
pub use self::command::{Command, IntoCommand, ToArg};
pub(crate) use self::encode::{Commands, EncodeBuffer, EncodedPipeline};
pub(crate) use self::policy::CommandClass;
pub use self::policy::RefusedCommand;

/// The reply to one command: a value, or the server's error.
pub(crate) type Reply = Result<Value, ServerError>;

/// The CRLF that ends every line and string.
pub(crate) const CRLF: usize = 2;
