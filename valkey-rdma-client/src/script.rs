//! [`Script`]: Lua on the server. [`Invocation`]: a call of it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use valkey_rdma_resp::{FromValue, ServerErrorKind, UnexpectedReply, Value};

use crate::client::{Client, Deployment};
use crate::cluster::Route;
use crate::command::{Command, ToArg};
use crate::error::Error;

/// A Lua script. Its text is sent to the server once; later calls send only its digest. For a user who may not run `SCRIPT LOAD`, each
/// call sends the text.
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::Script;
///
/// let add = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
/// let sum: i64 = add.invoke().key("counter").arg(5).query(&client).await?;
/// let same: i64 = add.query(&client, ["counter"], [5]).await?; // keys and arguments of one type each
/// # Ok(())
/// # }
/// ```
///
/// If the server no longer has the script, for example after a restart, the text is sent again. Clones share the
/// digest.
///
/// A [`function`](Self::function) of a library that the server has loaded (FUNCTION LOAD) is called in the same way:
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::Script;
///
/// let library = "#!lua name=numbers\nserver.register_function('add', function(keys, args)
///     return server.call('INCRBY', keys[1], args[1]) end)";
/// client.command(["FUNCTION", "LOAD", "REPLACE", library]).await?;
/// let sum: i64 = Script::function("add").query(&client, ["counter"], [5]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Script {
    code: Code,
    read_only: bool,
    idempotent: bool,
    timeout: Option<Duration>,
}

/// What runs.
#[derive(Clone, Debug)]
enum Code {
    Text {
        text: Bytes,
        /// Empty if the server refuses to load scripts.
        digest: Arc<OnceLock<Bytes>>,
    },
    /// The name of a function.
    Function(Bytes),
}

impl Script {
    /// A script with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self::of(Code::Text { text: text.into().into(), digest: Arc::default() })
    }

    /// The function with this name.
    #[must_use]
    pub fn function(name: impl Into<String>) -> Self {
        Self::of(Code::Function(name.into().into()))
    }

    fn of(code: Code) -> Self {
        Self { code, read_only: false, idempotent: false, timeout: None }
    }

    /// Declares that running it twice has the same effect as once, as [`Command::idempotent`] does.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Calls it as one that only reads (EVALSHA_RO, FCALL_RO): replicas run it too, it may be sent again after a lost
    /// connection, and the server refuses its writes.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Limits the duration of a call, as [`Command::timeout`] does. Sending the text again has the same limit in
    /// addition.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Begins a call: without keys or arguments, or with some of different types.
    pub fn invoke(&self) -> Invocation<'_> {
        Invocation { script: self, keys: Command::empty(), args: Command::empty() }
    }

    /// Runs it with keys and arguments. In a cluster, all keys must be in one slot.
    ///
    /// # Errors
    /// [`Error::Server`] if it fails or does not exist, and as for any command.
    ///
    /// # Cancel safety
    /// As [`Client::command`](crate::Client::command).
    pub async fn call(
        &self,
        client: &Client,
        keys: impl IntoIterator<Item = impl ToArg>,
        args: impl IntoIterator<Item = impl ToArg>,
    ) -> Result<Value, Error> {
        self.with(keys, args).call(client).await
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
        client: &Client,
        keys: impl IntoIterator<Item = impl ToArg>,
        args: impl IntoIterator<Item = impl ToArg>,
    ) -> Result<T, Error> {
        self.with(keys, args).query(client).await
    }

    fn with(
        &self,
        keys: impl IntoIterator<Item = impl ToArg>,
        args: impl IntoIterator<Item = impl ToArg>,
    ) -> Invocation<'_> {
        Invocation { script: self, keys: Command::from_args(keys), args: Command::from_args(args) }
    }
}

/// A call of a [`Script`]: what it runs with, one after the other.
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::Script;
///
/// let now: u64 = Script::new("return redis.call('TIME')[1]").invoke().query(&client).await?;
/// let put = Script::new("return redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])");
/// let () = put.invoke().key("greeting").arg("hello").arg(60).query(&client).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a call does nothing until sent"]
pub struct Invocation<'a> {
    script: &'a Script,
    /// Commands of keys and of arguments only. Kept for a second attempt.
    keys: Command,
    args: Command,
}

impl Invocation<'_> {
    /// Adds a key; several, for a slice, an array or a vector.
    pub fn key(mut self, key: impl ToArg) -> Self {
        self.keys.push(key);
        self
    }

    /// Adds an argument; several, for a slice, an array or a vector.
    pub fn arg(mut self, arg: impl ToArg) -> Self {
        self.args.push(arg);
        self
    }

    /// Runs it. In a cluster, all keys must be in one slot.
    ///
    /// # Errors
    /// As for [`Script::call`].
    ///
    /// # Cancel safety
    /// As [`Client::command`](crate::Client::command).
    pub async fn call(&self, client: &Client) -> Result<Value, Error> {
        let (text, known) = match &self.script.code {
            Code::Text { text, digest } => (text, digest),
            Code::Function(name) => return client.command(self.command(self.name(), name)).await,
        };
        let digest = match known.get() {
            Some(digest) => digest.clone(),
            None => {
                let load = Command::new("SCRIPT").arg("LOAD").arg(text).idempotent();
                let key = self.keys.words().next().unwrap_or_default();
                let load = self.limited(load);
                let loaded = match &client.deployment {
                    Deployment::Server(server) => server.call(load).await,
                    Deployment::Cluster(cluster) => {
                        cluster.command_on(Route::Key(Bytes::copy_from_slice(key)), load).boxed().await
                    }
                };
                let digest = match loaded {
                    Ok(digest) => digest.convert()?,
                    // The user may not load scripts, but perhaps run them: not asked again.
                    Err(Error::Server(error)) if error.kind() == ServerErrorKind::NoPerm => Bytes::new(),
                    Err(error) => return Err(error),
                };
                known.get_or_init(|| digest).clone()
            }
        };
        let with_text = || self.command(if self.script.read_only { "EVAL_RO" } else { "EVAL" }, text);
        if digest.is_empty() {
            return client.command(with_text()).await;
        }
        match client.command(self.command(self.name(), &digest)).await {
            // The server does not know the script, so it did not run.
            Err(Error::Server(error)) if error.kind() == ServerErrorKind::NoScript => {
                client.command(with_text()).await
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
    pub async fn query<T: FromValue>(&self, client: &Client) -> Result<T, Error> {
        let result = self.call(client).await?;
        Ok(result.convert().map_err(|error: UnexpectedReply| error.in_reply_to(self.name()))?)
    }

    fn name(&self) -> &'static str {
        match (&self.script.code, self.script.read_only) {
            (Code::Text { .. }, false) => "EVALSHA",
            (Code::Text { .. }, true) => "EVALSHA_RO",
            (Code::Function(_), false) => "FCALL",
            (Code::Function(_), true) => "FCALL_RO",
        }
    }

    fn command(&self, name: &str, what: &Bytes) -> Command {
        let command = Command::new(name).arg(what).arg(self.keys.arguments());
        let command = self.limited(command.followed_by(&self.keys).followed_by(&self.args));
        if self.script.idempotent { command.idempotent() } else { command }
    }

    fn limited(&self, command: Command) -> Command {
        match self.script.timeout {
            Some(limit) => command.timeout(limit),
            None => command,
        }
    }
}

/// Shows the numbers of keys and arguments only: they may be secret.
impl fmt::Debug for Invocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("script", self.script)
            .field("keys", &self.keys.arguments())
            .field("args", &self.args.arguments())
            .finish()
    }
}

#[cfg(test)]
mod tests;
