//! The login of a connection: user, password, protocol, database and name.

use tokio::time::timeout;
use valkey_rdma_client::{ByteStream, Endpoint};
use valkey_rdma_resp::{Protocol, words};
use valkey_rdma_transport::sync::lock;

use super::exchange::exchange;
use super::returns::{Returns, id};
use super::{Server, Upstream};
use crate::command::hello;
use crate::command::words::encode;
use crate::upstream::identity::{Identity, Login};
use crate::upstream::open_error::OpenError;

impl Server {
    /// Logs in again on a connection after `RESET`.
    pub(crate) async fn log_in_again(
        &self,
        upstream: &mut Upstream,
        identity: &Identity,
    ) -> Result<(), OpenError> {
        self.log_in(self.endpoint(), &mut upstream.stream, identity, None).await.map(|_| ())
    }

    /// Logs in, chooses protocol and database, and sets the name, in one exchange. With a name, also waits until the server has read its
    /// data: without one, its errors are for the one who asked. Returns the server's number of the connection, or 0.
    pub(super) async fn log_in(
        &self,
        endpoint: &Endpoint,
        stream: &mut ByteStream,
        identity: &Identity,
        name: Option<&str>,
    ) -> Result<u64, OpenError> {
        let is_located = endpoint.sentinels().is_some();
        // What the Sentinels report may be old. The reply to HELLO says the role too, and every user may run HELLO.
        let asks_role = is_located && identity.protocol == Protocol::Resp2;
        let (commands, returns) = self.login_commands(identity, name, asks_role);
        let limit = self.endpoint().timeout();
        let exchange = exchange(stream, &commands, returns.len());
        let replies = match timeout(limit, exchange).await {
            Ok(Ok(replies)) => replies,
            Ok(Err(error)) => return Err(OpenError::Unreachable(format!("{endpoint}: {error:#}"))),
            Err(_) => {
                let text = format!("{endpoint} did not answer the login within {limit:?}");
                return Err(OpenError::Unreachable(text));
            }
        };
        let is_closed = replies.len() < returns.len();
        for (returns, reply) in returns.iter().zip(&replies) {
            let is_fatal = returns.is_required() || is_closed || reply.starts_with(b"-NOAUTH");
            if reply.starts_with(b"-") && is_fatal {
                let error = OpenError::of_login(reply);
                let is_choice = identity.database != endpoint.database() && *returns == Returns::Selected;
                // What closes the connection is not about the database.
                return Err(if is_choice && !is_closed { error.of_choice() } else { error });
            }
            returns.check(reply).map_err(|text| OpenError::Unreachable(format!("{endpoint}: {text}")))?;
            let role = match returns {
                Returns::Role => role(reply),
                Returns::Hello => hello::role(reply),
                _ => None,
            };
            if let Some(role) = role.filter(|role| is_located && role != "master") {
                let peer = stream.info().peer.map(|peer| format!(" {peer}")).unwrap_or_default();
                let text = format!("{endpoint}: the Sentinels report{peer}, whose role is {role}");
                return Err(OpenError::Unreachable(text));
            }
        }
        let pong =
            returns.iter().position(|returns| *returns == Returns::Pong).and_then(|at| replies.get(at));
        if let (Some(pong), Some(_)) = (pong, name) {
            self.until_loaded(endpoint, stream, pong.clone()).await?;
        }
        stream.confirm_primary();
        Ok(replies.last().and_then(|reply| id(reply)).unwrap_or(0))
    }

    /// The commands of a login, and what each returns.
    fn login_commands(
        &self,
        identity: &Identity,
        name: Option<&str>,
        asks_role: bool,
    ) -> (Vec<u8>, Vec<Returns>) {
        let (mut commands, mut returns) = (Vec::new(), Vec::new());
        let mut say = |words: &[&[u8]], reply: Returns| {
            commands.extend_from_slice(&encode(words));
            returns.push(reply);
        };
        let mut require = |words: &[&[u8]]| {
            let is_hello = words.first() == Some(&&b"HELLO"[..]);
            say(words, if is_hello { Returns::Hello } else { Returns::Required });
        };
        let database = identity.database.to_string();
        let password = lock(&self.password).clone();
        match (identity.protocol, self.credentials(identity.login.as_deref(), password.as_deref())) {
            (Protocol::Resp3, (_, None)) => require(&[b"HELLO", b"3"]),
            (Protocol::Resp3, (user, Some(password))) => {
                require(&[b"HELLO", b"3", b"AUTH", user.unwrap_or(b"default"), password]);
            }
            (Protocol::Resp2, (_, None)) => {}
            // Servers before 6.0 have no users.
            (Protocol::Resp2, (None, Some(password))) => require(&[b"AUTH", password]),
            (Protocol::Resp2, (Some(user), Some(password))) => require(&[b"AUTH", user, password]),
        }
        if identity.database != 0 {
            say(&[b"SELECT", database.as_bytes()], Returns::Selected);
        }
        // Old servers or strict users may refuse the rest.
        say(&[b"CLIENT", b"SETNAME", name.unwrap_or_default().as_bytes()], Returns::Name);
        say(&[b"PING"], Returns::Pong);
        if asks_role {
            say(&[b"ROLE"], Returns::Role);
        }
        // At the end: nothing else returns an integer, so this reply shows that the others were in step.
        say(&[b"CLIENT", b"ID"], Returns::Id);
        (commands, returns)
    }

    /// User and password of a login, or of the server's user.
    fn credentials<'a>(
        &'a self,
        login: Option<&'a Login>,
        password: Option<&'a str>,
    ) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        match login {
            Some(login) => (Some(&login.user), Some(&login.password)),
            None => (self.endpoint().user().map(str::as_bytes), password.map(str::as_bytes)),
        }
    }
}

/// The role in a reply to ROLE. A user may not be allowed to ask: then Sentinel is trusted.
fn role(reply: &[u8]) -> Option<String> {
    words(reply).next().map(|role| role.escape_ascii().to_string())
}
