//! redis-rs's [`ConnectionLike`] for [`Client`]: `cmd()`, `pipe()`, `AsyncCommands` and `Script` run on our
//! multiplexer.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use redis::AsyncCommands;
//! use valkey_rdma_client::Client;
//!
//! let mut client = Client::connect("rdma://10.0.0.7").await?;
//! let () = client.hset("user:1", "name", "Ada").await?;
//! let name: String = client.hget("user:1", "name").await?;
//! # Ok(())
//! # }
//! ```
//!
//! For pub/sub, use [`Client::subscriber`]. Blocking commands run on a [dedicated
//! connection](Client::blocking_command); commands that would change the shared connection are refused, as always.

use std::{fmt, io};

use redis::aio::ConnectionLike;
use redis::{
    Cmd, ErrorKind, PushKind, RedisError, RedisFuture, RedisResult, ServerErrorKind, Value as RedisValue,
    VerbatimFormat,
};
use valkey_rdma_resp::{ServerError, Value};

use crate::client::Client;
use crate::command::{Command, CommandClass};
use crate::error::{AbortedTransaction, ClusterError, Error};

impl ConnectionLike for Client {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, RedisValue> {
        Box::pin(send(self, cmd))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<RedisValue>> {
        Box::pin(send_all(self, pipeline, offset, count))
    }

    fn get_db(&self) -> i64 {
        i64::from(self.endpoint().database())
    }
}

async fn send(client: &Client, cmd: &Cmd) -> RedisResult<RedisValue> {
    let command = from_redis(cmd);
    result_to_redis(match command.class() {
        CommandClass::Blocks => client.blocking_command(command).await,
        _ => client.command(command).await,
    })
}

/// An atomic pipeline is a transaction. redis-rs asks for the last replies only: for a transaction, that of EXEC.
async fn send_all(
    client: &Client,
    pipeline: &redis::Pipeline,
    offset: usize,
    count: usize,
) -> RedisResult<Vec<RedisValue>> {
    let commands = pipeline.cmd_iter().map(from_redis);
    if !pipeline.is_transaction() {
        let mut together = client.pipeline();
        commands.for_each(|command| {
            together.push(command);
        });
        let replies = together.send().await?;
        return replies.into_iter().skip(offset).take(count).map(result_to_redis).collect();
    }
    let mut transaction = client.transaction();
    commands.for_each(|command| {
        transaction.push(command);
    });
    let executed = match transaction.execute().await {
        Ok(replies) => {
            Value::Array(replies.into_iter().map(|reply| reply.unwrap_or_else(Value::Error)).collect())
        }
        Err(Error::Aborted(AbortedTransaction::Watched)) => Value::Nil,
        // To redis-rs an aborted transaction is a failure, not a reply.
        Err(error) => return Err(error.into()),
    };
    Ok(vec![to_redis(executed)?])
}

/// An error reply of the server is a value to redis-rs, as it is in its pipelines.
fn result_to_redis(reply: Result<Value, Error>) -> RedisResult<RedisValue> {
    match reply {
        Ok(value) => to_redis(value),
        Err(Error::Server(error)) => error_to_redis(&error),
        Err(error) => Err(error.into()),
    }
}

fn from_redis(cmd: &Cmd) -> Command {
    Command::from_packed(cmd.get_packed_command())
}

fn to_redis(value: Value) -> RedisResult<RedisValue> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = |items: Vec<Value>| items.into_iter().map(to_redis).collect::<RedisResult<Vec<_>>>();
    Ok(match value {
        Value::Nil => RedisValue::Nil,
        Value::Int(number) => RedisValue::Int(number),
        Value::Double(number) => RedisValue::Double(number),
        Value::Bool(truth) => RedisValue::Boolean(truth),
        Value::Simple(status) if &status[..] == b"OK" => RedisValue::Okay,
        Value::Simple(status) => RedisValue::SimpleString(text(&status)),
        Value::Bulk(bytes) => RedisValue::BulkString(bytes.into()),
        Value::Verbatim { format, text: shown } => {
            let format = match &format {
                b"txt" => VerbatimFormat::Text,
                b"mkd" => VerbatimFormat::Markdown,
                other => VerbatimFormat::Unknown(text(other)),
            };
            RedisValue::VerbatimString { format, text: text(&shown) }
        }
        // The type depends on redis-rs's features, so its own parser decides.
        Value::BigNumber(digits) => redis::parse_redis_value(&[b"(", &digits[..], b"\r\n"].concat())?,
        Value::Array(items) => RedisValue::Array(all(items)?),
        Value::Set(items) => RedisValue::Set(all(items)?),
        Value::Map(pairs) => {
            let pairs = pairs.into_iter().map(|(key, value)| Ok((to_redis(key)?, to_redis(value)?)));
            RedisValue::Map(pairs.collect::<RedisResult<_>>()?)
        }
        Value::Push(mut items) => {
            let kind = if items.is_empty() { None } else { items.remove(0).into_bytes() };
            RedisValue::Push { kind: push_kind(&kind.unwrap_or_default())?, data: all(items)? }
        }
        Value::Error(error) => error_to_redis(&error)?,
    })
}

/// Uses redis-rs's own parser, so that error kinds match: redis-rs has no constructor. In the form with a length, every text passes
/// unchanged.
fn error_to_redis(error: &ServerError) -> RedisResult<RedisValue> {
    let text = error.to_string();
    redis::parse_redis_value(format!("!{}\r\n{text}\r\n", text.len()).as_bytes())
}

/// The kind of a push message, which redis-rs's own parser knows.
fn push_kind(name: &[u8]) -> RedisResult<PushKind> {
    let name = String::from_utf8_lossy(name);
    match redis::parse_redis_value(format!(">1\r\n${}\r\n{name}\r\n", name.len()).as_bytes())? {
        RedisValue::Push { kind, .. } => Ok(kind),
        _ => Ok(PushKind::Other(name.into_owned())),
    }
}

/// An error of the kind EXECABORT, which names the command as redis-rs's own does. redis-rs makes that for its own connections only.
fn aborted_to_redis(index: usize, error: &ServerError) -> RedisError {
    let why = match error_to_redis(error) {
        Ok(RedisValue::ServerError(error)) => error.to_string(),
        _ => error.to_string(),
    };
    let text = format!("Transaction aborted: [(Index {index}, error: {why})]");
    Error::Server(ServerError::from_reply(format!("EXECABORT {text}").as_bytes())).into()
}

/// The error of a command that found no connection, and what that means for the command.
#[derive(Debug)]
struct WithFate(Error);

impl fmt::Display for WithFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}; {}", self.0, self.0.fate())
    }
}

/// As that of the error itself: redis-rs's error leads to it.
impl std::error::Error for WithFate {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<Error> for RedisError {
    fn from(error: Error) -> Self {
        match &error {
            Error::InPipeline(failed) => failed.error.clone().into(),
            Error::Server(reply) => match error_to_redis(reply) {
                Ok(RedisValue::ServerError(error)) => error.into(),
                Ok(_) => (ErrorKind::Extension, "server error", reply.to_string()).into(),
                Err(error) => error,
            },
            Error::Connect(refused) if refused.refuses_login() => {
                // redis-rs keeps the text of such an error, and no source.
                (ErrorKind::AuthenticationFailed, "login refused", WithFate(error).to_string()).into()
            }
            Error::Connect(_) => io::Error::new(io::ErrorKind::NotConnected, WithFate(error)).into(),
            Error::Lost(_) => io::Error::new(io::ErrorKind::BrokenPipe, error).into(),
            Error::TimedOut(_) => io::Error::new(io::ErrorKind::TimedOut, error).into(),
            Error::Unexpected(_) => {
                (ErrorKind::UnexpectedReturnType, "unexpected reply", error.to_string()).into()
            }
            Error::Endpoint(_) => (ErrorKind::InvalidClientConfig, "bad endpoint", error.to_string()).into(),
            Error::Cluster(ClusterError::CrossSlot { .. }) => {
                (ErrorKind::Server(ServerErrorKind::CrossSlot), "keys of different slots", error.to_string())
                    .into()
            }
            Error::Aborted(AbortedTransaction::Refused { index, error }) => aborted_to_redis(*index, error),
            Error::Cluster(ClusterError::Partial { first, .. }) if first.server().is_some() => {
                let code = first.server().map_or("", |error| &error.code);
                let text = format!("{code} {error}");
                Error::Server(ServerError::from_reply(text.as_bytes())).into()
            }
            Error::Cluster(ClusterError::Partial { .. }) => {
                (ErrorKind::Client, "ran in part", error.to_string()).into()
            }
            Error::Refused(_) | Error::Cluster(_) | Error::Aborted(_) => {
                (ErrorKind::Client, "refused", error.to_string()).into()
            }
        }
    }
}

#[cfg(test)]
mod tests;
