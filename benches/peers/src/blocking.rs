//! This project's blocking client: each task is a thread, and threads share a connection.

use bytes::Bytes;
use valkey_rdma_benchmark::{Connection, Failure, Library};
use valkey_rdma_client::blocking::Client;
use valkey_rdma_client::{Command, Config, Endpoint, Error, Value};

pub(crate) struct ValkeyRdmaBlocking;

impl Library for ValkeyRdmaBlocking {
    type Connection = Blocking;

    fn name(&self) -> &'static str {
        "valkey-rdma-blocking"
    }

    async fn connect(&self, server: &Endpoint) -> Result<Blocking, String> {
        let (server, config) = (server.clone(), Config::default().reconnect(None));
        // It refuses to block a thread of an asynchronous runtime.
        let connecting = std::thread::spawn(move || Client::connect_with(&server, &config)).join();
        let client = connecting.map_err(|_| "it panicked".to_owned())?;
        client.map(Blocking).map_err(|error| format!("{error:#}"))
    }
}

#[derive(Clone)]
pub(crate) struct Blocking(Client);

impl Connection for Blocking {
    type Command = Command;

    const BLOCKS: bool = true;

    fn command(name: &[u8]) -> Command {
        Command::new(name)
    }

    fn push(command: &mut Command, argument: &[u8]) {
        command.push(argument);
    }

    fn push_shared(command: &mut Command, argument: Bytes) {
        command.push(argument);
    }

    async fn call(&mut self, command: Command) -> Result<Value, Failure> {
        outcome(self.0.command(command))
    }

    async fn call_all(
        &mut self,
        commands: impl Iterator<Item = Command> + Send,
        each: impl FnMut(Result<Value, Failure>) + Send,
    ) -> Result<(), Failure> {
        let replies = self.0.pipeline(commands);
        let replies = replies.map_err(|error| Failure::Lost(format!("{error:#}")))?;
        replies.into_iter().map(outcome).for_each(each);
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.0.client().is_closed()
    }
}

fn outcome(reply: Result<Value, Error>) -> Result<Value, Failure> {
    match reply {
        Ok(value) => Ok(value),
        Err(Error::Server(error)) => Ok(Value::Error(error)),
        Err(error) => Err(Failure::Lost(format!("{error:#}"))),
    }
}
