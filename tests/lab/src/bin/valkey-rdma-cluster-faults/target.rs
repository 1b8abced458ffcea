//! The client that is examined.

use std::time::Duration;

use redis::cluster::ClusterClient as RedisClient;
use redis::cluster_async::ClusterConnection;
use valkey_rdma_client::{Client, Config, Error, Fate, Value};

/// A cluster client, ours or redis-rs's.
pub(crate) enum Target {
    Ours(Client),
    RedisRs(ClusterConnection),
}

/// What became of a command.
#[derive(Debug)]
pub(crate) enum Outcome {
    Text(Option<String>),
    Number(i64),
    /// It did not run.
    NotRun(String),
    /// It may have run.
    MayHaveRun(String),
    /// A reply that makes no sense.
    Wrong(String),
}

/// How long a client may try.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

impl Target {
    pub(crate) async fn ours(seeds: &[String]) -> Result<Self, String> {
        let config = Config::default().command_timeout(DEADLINE);
        let client = Client::connect_with(seeds, &config).await;
        client.map(Self::Ours).map_err(|error| format!("our client does not connect: {error:#}"))
    }

    pub(crate) async fn redis_rs(seeds: &[String]) -> Result<Self, String> {
        let seeds: Vec<String> = seeds.iter().map(|seed| seed.replace("valkey://", "redis://")).collect();
        let client = RedisClient::builder(seeds).connection_timeout(DEADLINE / 2).response_timeout(DEADLINE);
        let client = client.build().map_err(|error| format!("redis-rs: {error}"))?;
        let connection = client.get_async_connection().await;
        connection.map(Self::RedisRs).map_err(|error| format!("redis-rs does not connect: {error}"))
    }

    /// What our client knows of its cluster.
    pub(crate) fn status(&self) -> Option<String> {
        match self {
            Self::Ours(client) => client.cluster().map(|cluster| cluster.status().to_string()),
            Self::RedisRs(_) => None,
        }
    }

    pub(crate) async fn run(&self, words: &[&str]) -> Outcome {
        match self {
            Self::Ours(client) => ours(client.command(words).await),
            Self::RedisRs(connection) => {
                let mut command = redis::Cmd::new();
                for word in words {
                    command.arg(word);
                }
                theirs(command.query_async::<redis::Value>(&mut connection.clone()).await)
            }
        }
    }
}

fn ours(result: Result<Value, Error>) -> Outcome {
    match result {
        Ok(value) => match (value.as_int(), value.as_str()) {
            (Some(number), _) => Outcome::Number(number),
            (None, Some(text)) => Outcome::Text(Some(text.to_owned())),
            (None, None) if value.is_nil() => Outcome::Text(None),
            _ => Outcome::Wrong(format!("{value:?}")),
        },
        Err(error) if error.fate() == Fate::MayHaveRun => Outcome::MayHaveRun(format!("{error:#}")),
        // Error replies of a cluster that is not ready: the command did not run.
        Err(error) => Outcome::NotRun(format!("{error:#}")),
    }
}

fn theirs(result: redis::RedisResult<redis::Value>) -> Outcome {
    match result {
        Ok(redis::Value::Int(number)) => Outcome::Number(number),
        Ok(redis::Value::BulkString(text)) => {
            Outcome::Text(Some(String::from_utf8_lossy(&text).into_owned()))
        }
        Ok(redis::Value::SimpleString(text)) => Outcome::Text(Some(text)),
        Ok(redis::Value::Okay) => Outcome::Text(Some("OK".to_owned())),
        Ok(redis::Value::Nil) => Outcome::Text(None),
        Ok(other) => Outcome::Wrong(format!("{other:?}")),
        // It cannot say whether a command without a reply ran.
        Err(error) if error.is_io_error() || error.is_timeout() => Outcome::MayHaveRun(error.to_string()),
        Err(error) => Outcome::NotRun(error.to_string()),
    }
}
