//! Asks the server whether it admits clients without a login, when one comes.
//!
//! A connection stays logged in when the server's default user gets a password or is turned off; a new one has to log in. A client that
//! comes to the gateway is a new one, so it must not use a connection of before.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::warn;
use valkey_rdma_client::{Command, Value};
use valkey_rdma_transport::sync::lock;

use super::{Backend, Shared};

impl Backend {
    /// A client without a login has come. If others use connections without one, waits until the server has said whether it would admit
    /// a new one; an answer holds for a second. If not, such clients get new connections, also those that were there before.
    pub(crate) async fn check_newcomer(&self) {
        let server = &self.server;
        // What the gateway's own login may do, its clients may.
        if server.has_own_login(&server.identity()) || self.newcomers.pass(Instant::now().into()).is_none() {
            return;
        }
        let asked = async {
            match &self.cluster {
                // The library sends no AUTH. So the user must be allowed ACL GETUSER.
                Some(cluster) => {
                    let question = Command::from_args(["ACL", "GETUSER", "default"]).idempotent();
                    cluster.ask_without_login(question).await.is_some_and(|user| requires_login(&user))
                }
                None => self.refuses_newcomers().await,
            }
        };
        if timeout(PATIENCE, asked).await.unwrap_or(false) {
            self.drop_connections_without_login();
        }
    }

    /// The server has refused a new connection to a client, because the client has not logged in. It must not go on with an old one: a part
    /// of its transaction would run there.
    pub(crate) fn note_login_required(&self) {
        let is_old = |shared: &Arc<Shared>| shared.key.has_default_login() && shared.connection().is_some();
        if self.all_shared().iter().any(is_old) {
            self.drop_connections_without_login();
        }
    }

    /// Whether a new connection would have to log in. The default user accepts any password as long as it needs none. A refused one
    /// leaves the connection logged in.
    async fn refuses_newcomers(&self) -> bool {
        let now = Instant::now().into();
        // A connection for that alone would take the place of a client's, and one that owes replies is not burdened with more.
        let is_ready = |shared: &Arc<Shared>| {
            shared.key.has_default_login() && shared.connection().is_some() && !shared.is_stalled(now)
        };
        let connected = self.all_shared().into_iter().filter(is_ready).find_map(|shared| shared.attach());
        let Some(connection) = connected else { return false };
        let reply = connection.ask(&["AUTH", "default", ""]).await;
        reply.is_some_and(|reply| reply.starts_with(b"-WRONGPASS"))
    }

    /// Clients without a login leave their connections when none of their commands is in flight.
    fn drop_connections_without_login(&self) {
        warn!(server = %self.server.endpoint(), "the server requires a login from new clients; those that have not logged in get new connections");
        self.drop_idle_logins();
        for (_, pair) in lock(&self.shared).extract_if(|key, _| key.has_default_login()) {
            for shared in [Some(pair.current), pair.other].into_iter().flatten() {
                shared.set_retired(true);
                shared.forget();
            }
        }
        self.cluster.iter().for_each(|cluster| cluster.drop_default_login());
    }
}

/// Whether the default user, as ACL GETUSER describes it, is off or has a password. What is no such description says neither.
fn requires_login(user: &Value) -> bool {
    let is_flags = |name: &Value| name.as_str() == Some("flags");
    let flags = match (user.as_map(), user.as_slice()) {
        (Some(pairs), _) => pairs.iter().find(|(name, _)| is_flags(name)).map(|(_, flags)| flags),
        (_, Some(items)) => items.chunks(2).find(|pair| is_flags(&pair[0])).and_then(|pair| pair.get(1)),
        _ => None,
    };
    let Some(flags) = flags.and_then(Value::as_slice) else { return false };
    let has = |flag: &str| flags.iter().any(|known| known.as_str() == Some(flag));
    has("off") || !has("nopass")
}

/// How long a client waits for the answer. Without one it is let in: the server would not answer its commands either.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[&'static str]) -> Vec<Value> {
        words.iter().map(|word| Value::Bulk(word.as_bytes().into())).collect()
    }

    #[test]
    fn a_user_who_is_off_or_has_a_password_requires_a_login() {
        for (flags, expected) in [
            (&["on", "nopass"][..], false),
            (&["on", "nopass", "sanitize-payload"], false),
            (&["on"], true),
            (&["off", "nopass"], true),
        ] {
            let (name, flags) = (texts(&["flags"]), texts(flags));
            let map = Value::Map(vec![(name[0].clone(), Value::Set(flags.clone()))]);
            let array = Value::Array([name, vec![Value::Array(flags)]].concat());
            assert_eq!((requires_login(&map), requires_login(&array)), (expected, expected));
        }
        assert!(!requires_login(&Value::Nil) && !requires_login(&Value::Array(texts(&["flags"]))));
    }
}
