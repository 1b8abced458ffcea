//! [`RefusalLog`]: which commands the gateway refuses, for the operator: a client library may hide the reason from its user.

use std::time::{Duration, Instant};

use tracing::warn;
use valkey_rdma_resp::words;

use crate::command::words::is;
use crate::observe::seldom::Seldom;

/// What was logged of refused commands. Arguments never are.
pub(crate) struct RefusalLog {
    commands: Seldom,
    /// Of clients that ask for the nodes of a cluster.
    nodes: Seldom,
    http: Seldom,
}

impl Default for RefusalLog {
    fn default() -> Self {
        Self { commands: Seldom::every(APART), nodes: Seldom::every(APART), http: Seldom::every(HTTP_APART) }
    }
}

impl RefusalLog {
    /// Logs that a command of this user was refused, unless another line has been written just now.
    pub(crate) fn note(&self, command: &[u8], user: &str) {
        let name = shown(command);
        if ["CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES"].contains(&&*name) {
            if let Some(unlogged) = self.nodes.pass(Instant::now()) {
                warn!(user, command = name, unlogged, "{ASKS_FOR_NODES}");
            }
        } else if let Some(unlogged) = self.commands.pass(Instant::now()) {
            warn!(user, command = name, unlogged, "the command of a client was refused");
        }
    }

    /// Logs that a client was closed because it sent an HTTP request.
    pub(crate) fn note_http(&self, peer: &str) {
        if let Some(unlogged) = self.http.pass(Instant::now()) {
            warn!(peer, unlogged, "{HTTP}");
        }
    }
}

/// The name of a command, with a subcommand that is known: anything else may be a secret.
fn shown(command: &[u8]) -> String {
    let mut words = words(command);
    let name = words.next().unwrap_or_default();
    let upper = |word: &[u8]| word[..word.len().min(MOST_NAME)].escape_ascii().to_string().to_uppercase();
    let sub = words.next().and_then(|word| SUBCOMMANDS.into_iter().find(|known| is(word, known)));
    match sub.filter(|_| ["CLIENT", "CLUSTER", "SCRIPT"].into_iter().any(|with| is(name, with))) {
        Some(sub) => format!("{} {sub}", upper(name)),
        None => upper(name),
    }
}

const ASKS_FOR_NODES: &str = "a client asked for the nodes of a cluster, and the gateway is one server in front of it: use the client without its cluster mode (GlideClient, not GlideClusterClient; Redis, not Redis.Cluster)";
/// Subcommands that are refused most, and say more than the command.
const SUBCOMMANDS: [&str; 13] = [
    "SLOTS", "SHARDS", "NODES", "INFO", "MYID", "KEYSLOT", "TRACKING", "CACHING", "REPLY", "NO-EVICT",
    "NO-TOUCH", "PAUSE", "DEBUG",
];
const MOST_NAME: usize = 32;
const HTTP: &str = "client closed: possible attack: an HTTP request (POST or Host:), perhaps of a web page that wants a browser on this machine to run commands";
/// Between two lines.
const APART: Duration = Duration::from_secs(10);
/// Valkey's.
const HTTP_APART: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::words::encode;

    #[test]
    fn the_name_is_shown_and_no_argument() {
        for (line, name) in [
            ("cluster slots", "CLUSTER SLOTS"),
            ("CLIENT tracking ON", "CLIENT TRACKING"),
            ("CLIENT s3cret", "CLIENT"),
            ("BLPOP nodes 0", "BLPOP"),
            ("MONITOR", "MONITOR"),
            ("\u{7f}NOT-A-NAME-BUT-A-LONG-TEXT-WITHOUT-END x", "\\X7FNOT-A-NAME-BUT-A-LONG-TEXT-WITH"),
        ] {
            assert_eq!(shown(&encode(line.split(' '))), name, "{line}");
        }
    }
}
