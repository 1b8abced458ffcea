//! fred: tasks share its client, which writes what they send at the same time together.

use fred::error::{Error, ErrorKind};
use fred::prelude::{Builder, Client, ClientLike, Config, ServerConfig, Value as FredValue};
use fred::types::{CustomCommand, Resp3Frame, RespVersion};
use futures_util::future::join_all;
use valkey_rdma_benchmark::{CALL_LIMIT, Connection, Failure, Library};
use valkey_rdma_client::{Endpoint, Protocol, ServerError, Value};

pub(crate) struct Fred;

impl Library for Fred {
    type Connection = Shared;

    fn name(&self) -> &'static str {
        "fred"
    }

    async fn connect(&self, server: &Endpoint) -> Result<Shared, String> {
        let database =
            u8::try_from(server.database()).map_err(|_| "fred has databases 0 to 255".to_owned())?;
        let config = Config {
            server: ServerConfig::new_centralized(server.host(), server.port()),
            username: server.user().map(str::to_owned),
            password: server.password().map(str::to_owned),
            database: Some(database),
            version: match server.protocol() {
                Protocol::Resp3 => RespVersion::RESP3,
                _ => RespVersion::RESP2,
            },
            ..Config::default()
        };
        // Without a policy it does not connect again.
        let mut builder = Builder::from_config(config);
        builder.with_performance_config(|config| config.default_command_timeout = CALL_LIMIT);
        let client = builder.build().map_err(|error| error.to_string())?;
        client.init().await.map_err(|error| error.to_string())?;
        Ok(Shared(client))
    }
}

#[derive(Clone)]
pub(crate) struct Shared(Client);

/// A command's name, and its arguments.
pub(crate) struct Words {
    name: CustomCommand,
    arguments: Vec<FredValue>,
}

impl Connection for Shared {
    type Command = Words;

    fn command(name: &[u8]) -> Words {
        let name = String::from_utf8_lossy(name).into_owned();
        Words { name: CustomCommand::new(name, None, false), arguments: Vec::new() }
    }

    fn push(command: &mut Words, argument: &[u8]) {
        Self::push_shared(command, argument.to_vec().into());
    }

    fn push_shared(command: &mut Words, argument: bytes::Bytes) {
        command.arguments.push(FredValue::Bytes(argument));
    }

    async fn call(&mut self, Words { name, arguments }: Words) -> Result<Value, Failure> {
        value(self.0.custom_raw(name, arguments).await)
    }

    async fn call_all(
        &mut self,
        commands: impl Iterator<Item = Words> + Send,
        each: impl FnMut(Result<Value, Failure>) + Send,
    ) -> Result<(), Failure> {
        // Its pipelines do not say which replies are statuses. Calls that begin together leave together too.
        let call = |Words { name, arguments }| self.0.custom_raw(name, arguments);
        let calls: Vec<_> = commands.map(call).collect();
        join_all(calls).await.into_iter().map(value).for_each(each);
        Ok(())
    }

    fn is_closed(&self) -> bool {
        !self.0.is_connected()
    }
}

/// A reply as this project's client returns it. Strings are not copied.
fn value(reply: Result<Resp3Frame, Error>) -> Result<Value, Failure> {
    match reply {
        Ok(frame) => Ok(converted(frame)),
        Err(error) => match error.kind() {
            ErrorKind::IO | ErrorKind::Canceled | ErrorKind::Timeout | ErrorKind::Protocol => {
                Err(Failure::Lost(error.to_string()))
            }
            _ => Ok(Value::Error(ServerError::from_reply(error.details().as_bytes()))),
        },
    }
}

fn converted(frame: Resp3Frame) -> Value {
    let all = |frames: Vec<Resp3Frame>| frames.into_iter().map(converted).collect();
    match frame {
        Resp3Frame::BlobString { data, .. } => Value::Bulk(data),
        Resp3Frame::SimpleString { data, .. } => Value::Simple(data),
        Resp3Frame::BlobError { data, .. } => Value::Error(ServerError::from_reply(&data)),
        Resp3Frame::SimpleError { data, .. } => Value::Error(ServerError::from_reply(data.as_bytes())),
        Resp3Frame::Boolean { data, .. } => Value::Bool(data),
        Resp3Frame::Null => Value::Nil,
        Resp3Frame::Number { data, .. } => Value::Int(data),
        Resp3Frame::Double { data, .. } => Value::Double(data),
        Resp3Frame::BigNumber { data, .. } => Value::BigNumber(data),
        Resp3Frame::VerbatimString { data, .. } => Value::Verbatim { format: *b"txt", text: data },
        Resp3Frame::Array { data, .. } => Value::Array(all(data)),
        Resp3Frame::Push { data, .. } => Value::Push(all(data)),
        Resp3Frame::Set { data, .. } => Value::Set(data.into_iter().map(converted).collect()),
        Resp3Frame::Map { data, .. } => {
            Value::Map(data.into_iter().map(|(key, value)| (converted(key), converted(value))).collect())
        }
        // Never a reply to a test.
        other => Value::Simple(format!("{other:?}").into()),
    }
}
