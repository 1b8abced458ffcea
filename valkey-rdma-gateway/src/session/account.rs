//! Who the client is: logins, protocol versions and databases.

use std::time::Instant;

use bytes::Bytes;
use tracing::warn;
use valkey_rdma_resp::{Protocol, Reply, words};

use super::{Closed, Session};
use crate::command::hello;
use crate::command::words::{all, encode};
use crate::upstream::identity::Identity;
use crate::upstream::open_error::is_about_login;
use crate::upstream::private::database;

impl Session {
    /// AUTH: the server checks it, on a connection that is used for nothing else.
    pub(super) async fn auth(&mut self, command: &Bytes) -> Result<(), Closed> {
        let Some(reply) = self.check_login(command).await? else { return Ok(()) };
        if reply.starts_with(b"+")
            && let Some(login) = hello::login_of_auth(command)
        {
            let identity = Identity { login: Some(login), ..self.identity.clone() };
            self.become_identity(identity);
        }
        self.out.put(&reply);
        Ok(())
    }

    /// Sends AUTH to the connection that checks logins. A command with other words is answered here, because the server would log it.
    async fn check_login(&mut self, command: &[u8]) -> Result<Option<Bytes>, Closed> {
        let count = words(command).count();
        if count > 3 {
            self.put(&Reply::error("ERR syntax error"));
            return Ok(None);
        }
        if words(command).any(|word| word.len() > MAX_UNAUTHENTICATED) {
            self.refused_login(command);
            self.put(&Reply::error("WRONGPASS invalid username-password pair or user is disabled."));
            return Ok(None);
        }
        let checker = self.route.backend.checker();
        let reply = self.ask(&checker, command).await?;
        if is_about_login(&reply) {
            self.refused_login(command);
        } else if reply.starts_with(b"+") {
            let identity = Identity { login: hello::login_of_auth(command), ..self.identity.clone() };
            self.route.backend.pool.login_accepted(&identity.key());
        }
        Ok(Some(reply))
    }

    /// Counts a refused login, and logs it, so that the application is found.
    fn refused_login(&self, auth: &[u8]) {
        self.metrics().logins_refused.add(1);
        let Some(unlogged) = self.core.refused_logins.pass(Instant::now()) else { return };
        let user = words(auth).skip(1).take(2).collect::<Vec<_>>();
        let user = if let [user, _] = user[..] { user } else { b"default" };
        let user = user[..user.len().min(64)].escape_ascii();
        let (id, peer, name) = (self.client.id, &self.client.peer, &self.client.details().name);
        warn!(id, peer, name, %user, unlogged, "login of a client refused");
    }

    /// HELLO: checks the login, if there is one, and answers for the connection that the client will share.
    pub(super) async fn hello(&mut self, command: &Bytes) -> Result<(), Closed> {
        let words = all(command);
        let protocol = match words.get(1).map(|word| &word[..]) {
            None => self.identity.protocol,
            Some(b"2") => Protocol::Resp2,
            Some(b"3") => Protocol::Resp3,
            Some(other) if valkey_rdma_resp::integer::parse(other).is_none() => {
                self.put(&Reply::error("ERR Protocol version is not an integer or out of range"));
                return Ok(());
            }
            Some(_) => {
                self.put(&Reply::error("NOPROTO unsupported protocol version"));
                return Ok(());
            }
        };
        let options = match hello::Options::parse(words.get(2..).unwrap_or_default()) {
            Ok(options) => options,
            Err(option) => {
                let option = option.escape_ascii();
                self.put(&Reply::error(format!("ERR Syntax error in HELLO option '{option}'")));
                return Ok(());
            }
        };
        let mut identity = Identity { protocol, ..self.identity.clone() };
        if let Some(login) = options.login {
            let auth = encode([&b"AUTH"[..], &login.user, &login.password]);
            let Some(reply) = self.check_login(&auth).await? else { return Ok(()) };
            if !reply.starts_with(b"+") {
                self.out.put(&reply);
                return Ok(());
            }
            identity.login = Some(login);
        }
        let shared = self.route.backend.shared(&identity);
        let reply = self.ask(&shared, &encode(["HELLO"])).await?;
        if reply.starts_with(b"-") {
            self.out.put(&reply);
            return Ok(());
        }
        if let Some(name) = options.name
            && let Err(error) = self.set_name(&name)
        {
            self.put(&error);
            return Ok(());
        }
        self.become_identity(identity);
        self.out.put_shared(&hello::with_id(&reply, self.client.id));
        Ok(())
    }

    /// SELECT: the server checks the number when the connection for that database is used.
    pub(super) async fn select(&mut self, command: &Bytes) -> Result<(), Closed> {
        let count = words(command).count();
        let Some(database) = database(command).filter(|_| count == 2) else {
            // The server has the right error for it, and does not select anything.
            let invalid = if count == 2 { command } else { &Bytes::from(encode(["SELECT"])) };
            return self.pass_on(false, invalid).await;
        };
        if self.route.backend.cluster.is_some() {
            // It has one database, so nothing changes.
            return self.pass_on(false, command).await;
        }
        let identity = Identity { database, ..self.identity.clone() };
        let shared = self.route.backend.shared(&identity);
        let reply = self.ask(&shared, command).await?;
        if reply.starts_with(b"+") {
            self.become_identity(identity);
        }
        self.out.put(&reply);
        Ok(())
    }

    /// RESET: as a new connection.
    pub(super) fn reset(&mut self) {
        self.become_identity(self.route.backend.server.identity());
        self.client.details().name.clear();
        self.put(&Reply::simple("RESET"));
    }

    fn become_identity(&mut self, identity: Identity) {
        self.shared = self.route.backend.shared(&identity);
        self.identity = identity;
        self.describe();
    }

    /// Writes the identity into the client's entry of CLIENT LIST.
    pub(super) fn describe(&self) {
        let mut details = self.client.details();
        details.database = self.identity.database;
        details.protocol = self.identity.protocol;
        details.user = match &self.identity.login {
            Some(login) => String::from_utf8_lossy(&login.user).into_owned(),
            None => self.route.backend.server.user().to_owned(),
        };
    }
}

/// The server closes a connection that sends a longer word before it has logged in.
const MAX_UNAUTHENTICATED: usize = 16 * 1024;
