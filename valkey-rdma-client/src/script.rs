//! [`Script`] and [`Function`]: Lua on the server.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use valkey_rdma_resp::{FromValue, ServerErrorKind, UnexpectedReply, Value};

use crate::error::Error;
use crate::execute::Execute;
use crate::resp::{Command, ToArg};

/// A Lua script. Its text is sent to the server once; later calls send only its digest.
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::Script;
///
/// let add = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
/// let sum: i64 = add.query(&client, ["counter"], [5]).await?;
/// # Ok(())
/// # }
/// ```
///
/// If the server no longer has the script, for example after a restart, the text is sent again. Clones share the
/// digest.
#[derive(Clone, Debug)]
pub struct Script {
    text: Bytes,
    digest: Arc<OnceLock<Bytes>>,
    options: CallOptions,
}

/// Options of calls.
#[derive(Clone, Copy, Debug, Default)]
struct CallOptions {
    idempotent: bool,
    timeout: Option<Duration>,
}

impl CallOptions {
    fn apply(self, mut command: Command) -> Command {
        if self.idempotent {
            command = command.idempotent();
        }
        match self.timeout {
            Some(limit) => command.timeout(limit),
            None => command,
        }
    }
}

impl Script {
    /// A script with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into().into(), digest: Arc::default(), options: CallOptions::default() }
    }

    /// Declares that running the script twice has the same effect as once, as [`Command::idempotent`] does.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.options.idempotent = true;
        self
    }

    /// Limits the duration of a call, as [`Command::timeout`] does. Sending the text again has the same limit in
    /// addition.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// Runs it with keys and arguments, on a [`Client`](crate::Client) or a [`ClusterClient`](crate::ClusterClient). In a
    /// cluster, all keys must be in one slot.
    ///
    /// # Errors
    /// [`Error::Server`] if the script fails, and as for any command.
    ///
    /// # Cancel safety
    /// As [`Client::command`](crate::Client::command).
    pub async fn call(
        &self,
        client: &impl Execute,
        keys: impl IntoIterator<Item = impl ToArg>,
        args: impl IntoIterator<Item = impl ToArg>,
    ) -> Result<Value, Error> {
        let call = Call::new(keys, args);
        let digest = match self.digest.get() {
            Some(digest) => digest.clone(),
            None => {
                let load = Command::new("SCRIPT").arg("LOAD").arg(&self.text);
                let digest: Bytes = client
                    .execute_beside(call.first_key(), self.options.apply(load.idempotent()))
                    .await?
                    .try_into()?;
                self.digest.get_or_init(|| digest).clone()
            }
        };
        match client.execute(self.options.apply(call.command("EVALSHA", &digest))).await {
            // The server does not know the script, so it did not run.
            Err(Error::Server(error)) if error.kind() == ServerErrorKind::NoScript => {
                client.execute(self.options.apply(call.command("EVAL", &self.text))).await
            }
            other => other,
        }
    }

    /// Runs it as [`call`](Self::call) does, and converts its result.
    ///
    /// # Errors
    /// Same errors as [`call`](Self::call), and [`Error::Unexpected`] if the result does not convert.
    ///
    /// # Cancel safety
    /// As [`Client::command`](crate::Client::command).
    pub async fn query<T: FromValue>(
        &self,
        client: &impl Execute,
        keys: impl IntoIterator<Item = impl ToArg>,
        args: impl IntoIterator<Item = impl ToArg>,
    ) -> Result<T, Error> {
        let result = self.call(client, keys, args).await?;
        Ok(result.convert().map_err(|error: UnexpectedReply| error.in_reply_to("EVALSHA"))?)
    }
}

/// A function of a library that the server has loaded (FUNCTION LOAD).
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::Function;
///
/// let library = "#!lua name=numbers\nserver.register_function('add', function(keys, args)
///     return server.call('INCRBY', keys[1], args[1]) end)";
/// client.command(["FUNCTION", "LOAD", "REPLACE", library]).await?;
/// let sum: i64 = Function::new("add").query(&client, ["counter"], [5]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Function {
    name: Bytes,
    read_only: bool,
    options: CallOptions,
}

impl Function {
    /// The function with this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into().into(), read_only: false, options: CallOptions::default() }
    }

    /// As [`Script::idempotent`].
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.options.idempotent = true;
        self
    }

    /// As [`Script::timeout`].
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// Calls it as a read-only function (FCALL_RO): replicas run it too, and it may be sent again after a lost
    /// connection.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Runs it with keys and arguments.
    ///
    /// # Errors
    /// [`Error::Server`] if the function fails or does not exist, and as for any command.
    ///
    /// # Cancel safety
    /// As [`Client::command`](crate::Client::command).
    pub async fn call(
        &self,
        client: &impl Execute,
        keys: impl IntoIterator<Item = impl ToArg>,
        args: impl IntoIterator<Item = impl ToArg>,
    ) -> Result<Value, Error> {
        let call = Call::new(keys, args);
        let command = match self.read_only {
            true => call.command("FCALL_RO", &self.name),
            false => call.command("FCALL", &self.name),
        };
        client.execute(self.options.apply(command)).await
    }

    /// Runs it as [`call`](Self::call) does, and converts its result.
    ///
    /// # Errors
    /// Same errors as [`call`](Self::call), and [`Error::Unexpected`] if the result does not convert.
    ///
    /// # Cancel safety
    /// As [`Client::command`](crate::Client::command).
    pub async fn query<T: FromValue>(
        &self,
        client: &impl Execute,
        keys: impl IntoIterator<Item = impl ToArg>,
        args: impl IntoIterator<Item = impl ToArg>,
    ) -> Result<T, Error> {
        let result = self.call(client, keys, args).await?;
        let name = if self.read_only { "FCALL_RO" } else { "FCALL" };
        Ok(result.convert().map_err(|error: UnexpectedReply| error.in_reply_to(name))?)
    }
}

/// Keys and arguments, kept for a second attempt.
struct Call {
    keys: usize,
    /// A command of keys and arguments only.
    words: Command,
}

impl Call {
    fn new(keys: impl IntoIterator<Item = impl ToArg>, args: impl IntoIterator<Item = impl ToArg>) -> Self {
        let words = Command::from_args(keys);
        let keys = words.arguments();
        Self { keys, words: args.into_iter().fold(words, Command::arg) }
    }

    /// Empty without keys.
    fn first_key(&self) -> &[u8] {
        if self.keys > 0 { self.words.words().next().unwrap_or_default() } else { &[] }
    }

    fn command(&self, name: &str, what: &Bytes) -> Command {
        Command::new(name).arg(what).arg(self.keys).followed_by(&self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::multiplexer::tests::pair;

    #[tokio::test(start_paused = true)]
    async fn a_call_has_the_limit_and_the_leave_that_it_was_given() {
        let (client, door, mut peer) = pair(&Config::default()).await;
        let script = Script::new("return 1").idempotent().timeout(Duration::from_secs(60));
        let none: [&str; 0] = [];
        let serve = async {
            peer.expect("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$8\r\nreturn 1\r\n").await;
            peer.say(b"$2\r\nab\r\n").await;
            let call = "*3\r\n$7\r\nEVALSHA\r\n$2\r\nab\r\n$1\r\n0\r\n";
            peer.expect(call).await;
            drop(peer);
            let mut peer = door.admit();
            peer.greet_again().await;
            peer.expect(call).await;
            peer
        };
        let begin = tokio::time::Instant::now();
        let (outcome, _open) = tokio::join!(script.call(&client, none, none), serve);
        assert!(matches!(outcome, Err(Error::TimedOut(_))), "{outcome:?}");
        assert_eq!(begin.elapsed().as_secs(), 60);
    }
}
