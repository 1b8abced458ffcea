//! redis-rs: tasks share its multiplexed connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, Pipeline, ProtocolVersion, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates, Value as RedisValue,
};
use valkey_rdma_benchmark::{CALL_LIMIT, Connection, Failure, Library};
use valkey_rdma_client::{Endpoint, Protocol, ServerError, Value};

pub(crate) struct RedisRs;

impl Library for RedisRs {
    type Connection = Multiplexed;

    fn name(&self) -> &'static str {
        "redis-rs"
    }

    /// With the issuers of `ca`, and full verification.
    fn encrypts(&self) -> bool {
        true
    }

    async fn connect(&self, server: &Endpoint) -> Result<Multiplexed, String> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(CALL_LIMIT));
        let client = client(server).map_err(|error| error.to_string())?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connection.map_err(|error| error.to_string())?;
        Ok(Multiplexed { connection, closed: Arc::default() })
    }
}

/// Where `server` is, and how to log in.
pub(crate) fn client(server: &Endpoint) -> RedisResult<Client> {
    let mut login = RedisConnectionInfo::default().set_db(i64::from(server.database()));
    if let Some(user) = server.user() {
        login = login.set_username(user);
    }
    if let Some(password) = server.password() {
        login = login.set_password(password);
    }
    if server.protocol() == Protocol::Resp3 {
        login = login.set_protocol(ProtocolVersion::RESP3);
    }
    let Some(tls) = server.tls() else {
        let place = (server.host(), server.port()).into_connection_info()?;
        return Client::open(place.set_redis_settings(login));
    };
    let place = format!("rediss://{}:{}", server.host(), server.port()).into_connection_info()?;
    let root_cert = tls.ca().map(std::fs::read).transpose()?;
    Client::build_with_tls(place.set_redis_settings(login), TlsCertificates { client_tls: None, root_cert })
}

#[derive(Clone)]
pub(crate) struct Multiplexed {
    connection: MultiplexedConnection,
    /// A multiplexed connection does not say that it is lost, and is not opened anew.
    closed: Arc<AtomicBool>,
}

impl Multiplexed {
    fn failure(&self, error: &RedisError) -> Failure {
        self.closed.store(true, Ordering::Relaxed);
        Failure::Lost(error.to_string())
    }
}

impl Connection for Multiplexed {
    type Command = Cmd;

    fn command(name: &[u8]) -> Cmd {
        let mut command = Cmd::new();
        command.arg(name);
        command
    }

    fn push(command: &mut Cmd, argument: &[u8]) {
        command.arg(argument);
    }

    async fn call(&mut self, command: Cmd) -> Result<Value, Failure> {
        value(self.connection.req_packed_command(&command).await).map_err(|error| self.failure(&error))
    }

    async fn call_all(
        &mut self,
        commands: impl Iterator<Item = Cmd> + Send,
        each: impl FnMut(Result<Value, Failure>) + Send,
    ) -> Result<(), Failure> {
        let pipeline = pipeline(commands);
        let replies = self.connection.req_packed_commands(&pipeline, 0, pipeline.len()).await;
        let replies = replies.map_err(|error| self.failure(&error))?;
        replies.into_iter().map(|reply| Ok(converted(reply))).for_each(each);
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

pub(crate) fn pipeline(commands: impl Iterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::new();
    commands.for_each(|command| {
        pipeline.add_command(command);
    });
    pipeline
}

/// A reply as this project's client returns it. Strings are not copied.
///
/// # Errors
/// There was no reply.
pub(crate) fn value(reply: RedisResult<RedisValue>) -> RedisResult<Value> {
    match reply {
        Ok(reply) => Ok(converted(reply)),
        Err(error) => match (error.code(), error.detail()) {
            (Some(code), detail) if !error.is_io_error() => Ok(error_reply(code, detail)),
            _ => Err(error),
        },
    }
}

pub(crate) fn converted(reply: RedisValue) -> Value {
    let all = |values: Vec<RedisValue>| values.into_iter().map(converted).collect();
    match reply {
        RedisValue::Nil => Value::Nil,
        RedisValue::Int(number) => Value::Int(number),
        RedisValue::BulkString(bytes) => Value::Bulk(bytes.into()),
        RedisValue::Array(values) => Value::Array(all(values)),
        RedisValue::SimpleString(text) => Value::Simple(text.into()),
        RedisValue::Okay => Value::Simple("OK".into()),
        RedisValue::Map(pairs) => {
            Value::Map(pairs.into_iter().map(|(key, value)| (converted(key), converted(value))).collect())
        }
        RedisValue::Attribute { data, .. } => converted(*data),
        RedisValue::Set(values) => Value::Set(all(values)),
        RedisValue::Double(number) => Value::Double(number),
        RedisValue::Boolean(truth) => Value::Bool(truth),
        RedisValue::VerbatimString { text, .. } => Value::Verbatim { format: *b"txt", text: text.into() },
        RedisValue::BigNumber(digits) => Value::BigNumber(digits.into()),
        RedisValue::Push { data, .. } => Value::Push(all(data)),
        RedisValue::ServerError(error) => error_reply(error.code(), error.details()),
        // The enum may grow. No test expects such a reply.
        other => Value::Simple(format!("{other:?}").into()),
    }
}

fn error_reply(code: &str, details: Option<&str>) -> Value {
    Value::Error(ServerError::from_reply(format!("{code} {}", details.unwrap_or_default()).as_bytes()))
}
