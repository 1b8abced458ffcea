//! What one node says of itself, as if it were the whole server.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use valkey_rdma_client::cluster::{NodeStatus, Route};
use valkey_rdma_client::{Client, Command, Error, Value};
use valkey_rdma_resp::{Reply, words};

use super::failure::passes;
use super::{command_on, nodes};
use crate::command::words::is;

/// Whether a command asks a server about itself. The same node answers all of them: programs compare its counters with earlier ones.
pub(super) fn is_about_server(command: &[u8]) -> bool {
    let mut words = words(command);
    let (name, sub) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    ["INFO", "ROLE", "LASTSAVE"].iter().any(|plain| is(name, plain))
        || is(name, "MEMORY") && is(sub, "STATS")
        || is(name, "CONFIG") && is(sub, "GET")
}

/// Asks the first primary that is there: the same one for all local clients, until the nodes change. If it does not answer soon, the next.
pub(super) async fn ask(client: &Client, command: Command) -> Result<Value, Error> {
    let command = command.idempotent();
    let is_there = |node: &NodeStatus| node.is_primary && node.error.is_none() && node.silent_for.is_none();
    for node in nodes(client).into_iter().filter(is_there) {
        let asked = command_on(client, Route::Node(node.address), command.clone());
        match timeout(PATIENCE, asked).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) if error.server().is_some() && !passes(&error) => return Err(error),
            _ => {}
        }
    }
    command_on(client, Route::Any, command).await
}

/// Asks some primary. If it does not answer soon, the others. For commands that are answered at once.
pub(super) async fn ask_any(client: &Client, command: Command) -> Result<Value, Error> {
    let command = command.idempotent();
    match timeout(PATIENCE, command_on(client, Route::Any, command.clone())).await {
        Ok(answer) => answer,
        Err(_) => ask(client, command).await,
    }
}

/// INFO of one node, with cluster mode off, and with the keys of all nodes.
pub(super) async fn standalone(client: &Client, command: Command) -> Result<Reply, Error> {
    let (text, is_verbatim) = match ask(client, command).await? {
        Value::Bulk(text) => (text, false),
        Value::Verbatim { text, .. } => (text, true),
        other => return Ok(other.into()),
    };
    let text = String::from_utf8_lossy(&text).replace("cluster_enabled:1", "cluster_enabled:0");
    let mut text = text.replace("_mode:cluster", "_mode:standalone");
    if text.contains(KEYSPACE) {
        let asked = client.command(Command::from_args(["INFO", "keyspace"]).idempotent());
        // Without an answer of all nodes, one node's is better than none.
        if let Ok(Ok(Value::Map(nodes))) = timeout(PATIENCE, asked).await {
            let nodes = nodes.iter().filter_map(|(_, text)| text.as_str());
            text = with_keyspace(&text, &databases(nodes));
        }
    }
    let text = Bytes::from(text);
    Ok(if is_verbatim { Reply::Verbatim { format: *b"txt", text } } else { Reply::Bulk(text) })
}

/// Each database with its fields, in the order of the server, added up.
type Databases = BTreeMap<u32, Vec<(String, u64)>>;

/// The databases in these texts. Lines such as `db0:keys=7,expires=2,avg_ttl=1500`.
fn databases<'a>(texts: impl Iterator<Item = &'a str>) -> Databases {
    let mut all = Databases::new();
    for line in texts.flat_map(str::lines) {
        let Some((number, fields)) = line.strip_prefix("db").and_then(|line| line.split_once(':')) else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        let field = |field: &str| {
            let (name, value) = field.split_once('=')?;
            Some((name.to_owned(), value.trim_end().parse().ok()?))
        };
        let mut fields: Vec<(String, u64)> = fields.split(',').filter_map(field).collect();
        let known = all.entry(number).or_default();
        average_ttl(known, &mut fields);
        for (name, value) in fields {
            match known.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(value),
                None => known.push((name, value)),
            }
        }
    }
    all
}

/// Weighs averages by the keys that expire, so that their sum is the average of both.
fn average_ttl(known: &mut [(String, u64)], more: &mut [(String, u64)]) {
    let of = |fields: &[(String, u64)], wanted: &str| {
        fields.iter().find(|(name, _)| name == wanted).map_or(0, |(_, value)| u128::from(*value))
    };
    let (here, there) = (of(known, "expires"), of(more, "expires"));
    let Some(all) = Some(here + there).filter(|all| *all > 0) else { return };
    for (fields, weight) in [(known, here), (more, there)] {
        if let Some((_, ttl)) = fields.iter_mut().find(|(name, _)| name == "avg_ttl") {
            *ttl = u64::try_from(u128::from(*ttl) * weight / all).unwrap_or(u64::MAX);
        }
    }
}

/// The text with these databases in place of its own.
fn with_keyspace(text: &str, databases: &Databases) -> String {
    let is_database = |line: &str| {
        let number = line.strip_prefix("db").and_then(|line| line.split_once(':'));
        number.is_some_and(|(number, _)| number.parse::<u32>().is_ok())
    };
    let mut whole = String::with_capacity(text.len());
    for line in text.split_inclusive('\n').filter(|line| !is_database(line)) {
        whole.push_str(line);
        if line.trim_end() == KEYSPACE {
            for (number, fields) in databases {
                let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                whole.push_str(&format!("db{number}:{}\r\n", fields.join(",")));
            }
        }
    }
    whole
}

const KEYSPACE: &str = "# Keyspace";
/// How long one node may take before another is asked.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::words::encode;

    #[test]
    fn questions_about_a_server_are_known_by_their_first_words() {
        for (line, expected) in [
            ("info", true),
            ("INFO server", true),
            ("ROLE", true),
            ("MEMORY STATS", true),
            ("MEMORY USAGE k", false),
            ("config get *", true),
            ("CONFIG SET a b", false),
            ("GET info", false),
        ] {
            assert_eq!(is_about_server(&encode(line.split(' '))), expected, "{line}");
        }
    }

    #[test]
    fn the_keys_of_all_nodes_are_those_of_the_server() {
        let nodes = [
            "# Keyspace\r\ndb0:keys=7,expires=1,avg_ttl=1000,keys_with_volatile_items=0\r\n",
            "# Keyspace\r\n",
            "# Keyspace\r\ndb0:keys=5,expires=3,avg_ttl=2000,keys_with_volatile_items=2\r\ndb3:keys=1,expires=0,avg_ttl=0\r\n",
        ];
        let all = databases(nodes.into_iter());
        let text =
            "# Cluster\r\ncluster_enabled:0\r\n\r\n# Keyspace\r\ndb0:keys=7,expires=1,avg_ttl=1000\r\n";
        let expected = "# Cluster\r\ncluster_enabled:0\r\n\r\n# Keyspace\r\n\
            db0:keys=12,expires=4,avg_ttl=1750,keys_with_volatile_items=2\r\n\
            db3:keys=1,expires=0,avg_ttl=0\r\n";
        assert_eq!(with_keyspace(text, &all), expected);
        assert_eq!(with_keyspace("# Keyspace\r\n", &all), expected.split_once("\r\n\r\n").expect("two").1);
        assert_eq!(
            with_keyspace(text, &databases([].into_iter())),
            "# Cluster\r\ncluster_enabled:0\r\n\r\n# Keyspace\r\n"
        );
    }
}
