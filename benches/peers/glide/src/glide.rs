//! valkey-glide: tasks share its client, which has one connection to a server without replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use glide::executor::CommandExecutor;
use glide::{
    Cmd, GlideClient, GlideClientConfiguration, GlideError, ProtocolVersion, ServerCredentials, ValkeyResult,
    ValkeyValue,
};
use valkey_rdma_benchmark::{CALL_LIMIT, Connection, Failure, Library};
use valkey_rdma_client::{Endpoint, Protocol, ServerError, Value};

pub(crate) struct Glide;

impl Library for Glide {
    type Connection = Shared;

    fn name(&self) -> &'static str {
        "glide"
    }

    async fn connect(&self, server: &Endpoint) -> Result<Shared, String> {
        let mut config = GlideClientConfiguration::with_address(server.host(), server.port())
            .database_id(i64::from(server.database()))
            .request_timeout(CALL_LIMIT)
            .protocol(match server.protocol() {
                Protocol::Resp3 => ProtocolVersion::RESP3,
                _ => ProtocolVersion::RESP2,
            });
        if let Some(password) = server.password() {
            config = config.credentials(match server.user() {
                Some(user) => ServerCredentials::username_password(user, password),
                None => ServerCredentials::password(password),
            });
        }
        let client = GlideClient::connect(config).await.map_err(|error| error.to_string())?;
        Ok(Shared { client, failed: Arc::default() })
    }
}

#[derive(Clone)]
pub(crate) struct Shared {
    client: GlideClient,
    /// The client does not report that it connects again: after a lost call, the load tool opens another one.
    failed: Arc<AtomicBool>,
}

impl Shared {
    /// A reply as this project's client returns it. Strings are not copied.
    fn value(&self, reply: ValkeyResult<ValkeyValue>) -> Result<Value, Failure> {
        match reply {
            Ok(reply) => Ok(converted(reply)),
            Err(GlideError::Request(error) | GlideError::ExecAbort(error)) => {
                Ok(Value::Error(ServerError::from_reply(error.as_bytes())))
            }
            Err(error) => {
                self.failed.store(true, Ordering::Relaxed);
                Err(Failure::Lost(error.to_string()))
            }
        }
    }
}

impl Connection for Shared {
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
        self.value(self.client.execute_command(command, None).await)
    }

    async fn call_all(
        &mut self,
        commands: impl Iterator<Item = Cmd> + Send,
        each: impl FnMut(Result<Value, Failure>) + Send,
    ) -> Result<(), Failure> {
        // Its pipelines take no finished commands. Calls that begin together leave together too.
        let calls: Vec<_> = commands.map(|command| self.client.execute_command(command, None)).collect();
        join_all(calls).await.into_iter().map(|reply| self.value(reply)).for_each(each);
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

fn converted(reply: ValkeyValue) -> Value {
    let all = |values: Vec<ValkeyValue>| values.into_iter().map(converted).collect();
    match reply {
        ValkeyValue::Nil => Value::Nil,
        ValkeyValue::Int(number) => Value::Int(number),
        ValkeyValue::BulkString(bytes) => Value::Bulk(bytes),
        ValkeyValue::Array(values) => Value::Array(all(values)),
        ValkeyValue::SimpleString(text) => Value::Simple(text.into()),
        ValkeyValue::Okay => Value::Simple("OK".into()),
        ValkeyValue::Map(pairs) => {
            Value::Map(pairs.into_iter().map(|(key, value)| (converted(key), converted(value))).collect())
        }
        ValkeyValue::Set(values) => Value::Set(all(values)),
        ValkeyValue::Double(number) => Value::Double(number),
        ValkeyValue::Boolean(truth) => Value::Bool(truth),
        ValkeyValue::VerbatimString { text, .. } => Value::Verbatim { format: *b"txt", text: text.into() },
        ValkeyValue::BigNumber(number) => Value::BigNumber(number.to_string().into()),
        ValkeyValue::ServerError(error) => {
            let text = format!("{} {}", error.err_code(), error.details().unwrap_or_default());
            Value::Error(ServerError::from_reply(text.trim_end().as_bytes()))
        }
    }
}
