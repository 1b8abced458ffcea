//! This project's client library as a source of shared connections.

use bytes::Bytes;
use valkey_rdma_client::{Client, Command, Endpoint, Error, Purpose, Value};
use valkey_rdma_transport::Stats;

use super::dial::{DialError, Target, dial_caller};
use super::library::{Connection, Failure, Source};
use super::link_info::LinkInfo;

/// The client of this project, of one server or of a cluster.
pub(super) struct Ours;

impl Source for Ours {
    type Connection = Client;

    fn called(&self) -> &'static str {
        "valkey-rdma"
    }

    fn refuses(&self, _: &Endpoint) -> Option<String> {
        None
    }

    async fn dial(&self, target: &Target) -> Result<Client, DialError> {
        dial_caller(target).await
    }

    fn link_info(&self, client: &Client) -> LinkInfo {
        link_info(client)
    }

    fn stats(&self, client: &Client) -> Vec<Stats> {
        let shared =
            client.connections().into_iter().filter(|connection| connection.purpose == Purpose::Shared);
        shared.filter_map(|connection| connection.stats).collect()
    }
}

impl Connection for Client {
    type Command = Command;

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
        outcome(Client::command(self, command).await)
    }

    async fn call_all(
        &mut self,
        commands: impl Iterator<Item = Command> + Send,
        mut each: impl FnMut(Result<Value, Failure>) + Send,
    ) -> Result<(), Failure> {
        let mut pipeline = self.pipeline();
        for command in commands {
            pipeline.push(command);
        }
        // In a cluster, all replies count as arrived with the last.
        pipeline.send_each(|_, reply| each(outcome(reply))).await.map_err(|error| failure(&error))
    }

    fn is_closed(&self) -> bool {
        Client::is_closed(self)
    }
}

/// What the client's connection runs on.
pub(crate) fn link_info(client: &Client) -> LinkInfo {
    let info = client.info();
    LinkInfo {
        device: info.device.clone(),
        mtu: info.mtu,
        rx_window: info.rx_window,
        tx_window: info.tx_window,
        tls: info.tls.clone(),
    }
}

pub(super) fn outcome(reply: Result<Value, Error>) -> Result<Value, Failure> {
    match reply {
        Ok(value) => Ok(value),
        Err(Error::Server(error)) => Ok(Value::Error(error)),
        Err(error) => Err(failure(&error)),
    }
}

#[cold]
pub(super) fn failure(error: &Error) -> Failure {
    let text = format!("{error:#}");
    match error {
        Error::Refused(_) => Failure::Refused(text),
        _ => Failure::Lost(text),
    }
}
