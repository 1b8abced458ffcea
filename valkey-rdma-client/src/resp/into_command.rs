//! [`IntoCommand`]: what can be sent as a command. [`cmd!`](crate::cmd): commands of arguments of different types.

use super::command::{Command, ToArg};

/// What [`Client::command`](crate::Client::command), [`Client::query`](crate::Client::query) and pipelines take: a [`Command`],
/// which [`cmd!`](crate::cmd) makes, or a name and arguments in an array or iterator.
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::{Command, cmd};
///
/// client.command(["SET", "greeting", "hello"]).await?;
/// client.command(cmd!["SET", "greeting", "hello", "EX", 60]).await?;
/// client.command(Command::new("SET").arg("greeting").arg("hello").idempotent()).await?;
/// # Ok(())
/// # }
/// ```
pub trait IntoCommand {
    /// Returns the command.
    fn into_command(self) -> Command;

    /// Passes the command by reference to a function. A `&Command` is not cloned for it.
    fn with_command<R>(self, take: impl FnOnce(&Command) -> R) -> R
    where
        Self: Sized,
    {
        take(&self.into_command())
    }
}

impl IntoCommand for Command {
    fn into_command(self) -> Command {
        self
    }
}

/// Clones it: see [`Command`] for what is shared.
impl IntoCommand for &Command {
    fn into_command(self) -> Command {
        self.clone()
    }

    fn with_command<R>(self, take: impl FnOnce(&Command) -> R) -> R {
        take(self)
    }
}

impl<I: IntoIterator<Item: ToArg>> IntoCommand for I {
    fn into_command(self) -> Command {
        Command::from_args(self)
    }
}

/// Makes a [`Command`](crate::Command) of a name and arguments of any types that implement [`ToArg`](crate::ToArg).
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::cmd;
///
/// let (key, value, seconds) = (format!("user:{}", 17), vec![1, 2, 3], 60);
/// client.command(cmd!["SET", &key, value, "EX", seconds]).await?;
/// let rest: i64 = client.query(cmd!["TTL", key]).await?;
/// let keys = ["a", "b"];
/// let removed: u64 = client.query(cmd!["DEL", keys]).await?; // one argument for each member
/// # Ok(())
/// # }
/// ```
///
/// Arguments are moved, as those of a function are: use `&value` to keep a value. Large values that are moved are not copied.
#[macro_export]
macro_rules! cmd {
    ($name:expr $(, $arg:expr)* $(,)?) => {
        $crate::Command::new($name)$(.arg($arg))*
    };
}
