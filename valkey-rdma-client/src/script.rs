//! [`Script`] and [`Function`]: Lua on the server. [`Invocation`]: a call of one.

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
/// let sum: i64 = add.invoke().key("counter").arg(5).query(&client).await?;
/// let same: i64 = add.query(&client, ["counter"], [5]).await?; // keys and arguments of one type each
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

    /// Begins a call: without keys or arguments, or with some of different types.
    pub fn invoke(&self) -> Invocation<'_> {
        Invocation::of(Runs::Script(self))
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
        Invocation::with(Runs::Script(self), keys, args).call(client).await
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
        Invocation::with(Runs::Script(self), keys, args).query(client).await
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

    /// As [`Script::invoke`].
    pub fn invoke(&self) -> Invocation<'_> {
        Invocation::of(Runs::Function(self))
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
        Invocation::with(Runs::Function(self), keys, args).call(client).await
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
        Invocation::with(Runs::Function(self), keys, args).query(client).await
    }
}

/// A call of a [`Script`] or a [`Function`]: what it runs with, one after the other.
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
#[derive(Clone, Debug)]
#[must_use = "a call does nothing until sent"]
pub struct Invocation<'a> {
    runs: Runs<'a>,
    /// Commands of keys and of arguments only. Kept for a second attempt.
    keys: Command,
    args: Command,
}

#[derive(Clone, Copy, Debug)]
enum Runs<'a> {
    Script(&'a Script),
    Function(&'a Function),
}

impl<'a> Invocation<'a> {
    fn of(runs: Runs<'a>) -> Self {
        Self { runs, keys: Command::empty(), args: Command::empty() }
    }

    fn with(
        runs: Runs<'a>,
        keys: impl IntoIterator<Item = impl ToArg>,
        args: impl IntoIterator<Item = impl ToArg>,
    ) -> Self {
        Self { runs, keys: Command::from_args(keys), args: Command::from_args(args) }
    }

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

    /// Runs it, on a [`Client`](crate::Client) or a [`ClusterClient`](crate::ClusterClient). In a cluster, all keys must be in one
    /// slot.
    ///
    /// # Errors
    /// [`Error::Server`] if the script or the function fails, and as for any command.
    ///
    /// # Cancel safety
    /// As [`Client::command`](crate::Client::command).
    pub async fn call(&self, client: &impl Execute) -> Result<Value, Error> {
        let script = match self.runs {
            Runs::Script(script) => script,
            Runs::Function(function) => {
                return client.execute(self.command(self.name(), &function.name)).await;
            }
        };
        let digest = match script.digest.get() {
            Some(digest) => digest.clone(),
            None => {
                let load = Command::new("SCRIPT").arg("LOAD").arg(&script.text);
                let key = self.keys.words().next().unwrap_or_default();
                let load = script.options.apply(load.idempotent());
                let digest: Bytes = client.execute_beside(key, load).await?.try_into()?;
                script.digest.get_or_init(|| digest).clone()
            }
        };
        match client.execute(self.command(self.name(), &digest)).await {
            // The server does not know the script, so it did not run.
            Err(Error::Server(error)) if error.kind() == ServerErrorKind::NoScript => {
                client.execute(self.command("EVAL", &script.text)).await
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
    pub async fn query<T: FromValue>(&self, client: &impl Execute) -> Result<T, Error> {
        let result = self.call(client).await?;
        Ok(result.convert().map_err(|error: UnexpectedReply| error.in_reply_to(self.name()))?)
    }

    fn name(&self) -> &'static str {
        match self.runs {
            Runs::Script(_) => "EVALSHA",
            Runs::Function(Function { read_only: true, .. }) => "FCALL_RO",
            Runs::Function(_) => "FCALL",
        }
    }

    fn command(&self, name: &str, what: &Bytes) -> Command {
        let options = match self.runs {
            Runs::Script(script) => script.options,
            Runs::Function(function) => function.options,
        };
        let command = Command::new(name).arg(what).arg(self.keys.arguments());
        options.apply(command.followed_by(&self.keys).followed_by(&self.args))
    }
}

#[cfg(test)]
mod tests;
