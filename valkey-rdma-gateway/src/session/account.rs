//! Who the client is: logins, protocol versions and databases.

use std::sync::Arc;

use bytes::Bytes;
use valkey_rdma_resp::{Decoder, Protocol, Reply, Value, words};

use super::{Closed, Session};
use crate::class::{Local, is};
use crate::identity::{Identity, Login};
use crate::private::database;
use crate::words::{all, encode};

impl Session {
    /// The login that AUTH or HELLO asks for, as the server reads it.
    pub(super) fn login_of(local: Local, command: &[u8]) -> Option<Arc<Login>> {
        let words = all(command);
        match (local, &words[1..]) {
            (Local::Auth, [password]) => {
                Some(Arc::new(Login { user: b"default".to_vec(), password: password.clone() }))
            }
            (Local::Auth, [user, password]) => {
                Some(Arc::new(Login { user: user.clone(), password: password.clone() }))
            }
            (Local::Hello, [_, options @ ..]) => HelloOptions::parse(options).ok()?.login,
            _ => None,
        }
    }

    /// AUTH: the server checks it, on a connection that is used for nothing else.
    pub(super) async fn auth(&mut self, command: &Bytes) -> Result<(), Closed> {
        let Some(reply) = self.check_login(command).await? else { return Ok(()) };
        if reply.starts_with(b"+")
            && let Some(login) = Self::login_of(Local::Auth, command)
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
            self.put(&Reply::error("WRONGPASS invalid username-password pair or user is disabled."));
            return Ok(None);
        }
        let checker = self.pool.checker();
        self.ask(&checker, command).await.map(Some)
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
        let options = match HelloOptions::parse(words.get(2..).unwrap_or_default()) {
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
        let shared = self.pool.shared(&identity);
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
        let reply = self.hello_reply(&reply);
        self.put(&reply);
        Ok(())
    }

    /// The server's reply to HELLO, with the client's own number.
    fn hello_reply(&self, reply: &Bytes) -> Reply {
        let mut decoder = Decoder::new(self.identity.protocol);
        decoder.room().extend_from_slice(reply);
        let mut pairs = match decoder.next() {
            Ok(Some(Value::Map(pairs))) => pairs,
            Ok(Some(Value::Array(items))) => {
                items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
            }
            _ => return Reply::error("ERR the server's reply to HELLO is not a map"),
        };
        let id = i64::try_from(self.client.id).unwrap_or(i64::MAX);
        for (key, value) in &mut pairs {
            if key.as_bytes() == Some(b"id") {
                *value = Value::Int(id);
            }
        }
        Reply::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// SELECT: the server checks the number when the connection for that database is used.
    pub(super) async fn select(&mut self, command: &Bytes) -> Result<(), Closed> {
        let count = words(command).count();
        let Some(database) = database(command).filter(|_| count == 2) else {
            // The server has the right error for it, and does not select anything.
            let invalid = if count == 2 { command } else { &Bytes::from(encode(["SELECT"])) };
            return self.pass_to_server(invalid).await;
        };
        if self.pool.cluster.is_some() {
            // It has one database, so nothing changes.
            return self.pass_to_server(command).await;
        }
        let selected_as = self.identity.login.clone();
        let identity = Identity { database, selected_as, ..self.identity.clone() };
        let shared = self.pool.shared(&identity);
        let reply = self.ask(&shared, command).await?;
        if reply.starts_with(b"+") {
            self.become_identity(identity);
        }
        self.out.put(&reply);
        Ok(())
    }

    /// RESET: as a new connection.
    pub(super) fn reset(&mut self) {
        self.become_identity(self.pool.server.identity());
        self.client.details().name.clear();
        self.put(&Reply::simple("RESET"));
    }

    fn become_identity(&mut self, identity: Identity) {
        self.shared = self.pool.shared(&identity);
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
            None => self.pool.server.endpoint().user().unwrap_or("default").to_owned(),
        };
    }
}

/// The options of HELLO. Of repeated ones the last counts, as in the server.
#[derive(Debug, Default)]
struct HelloOptions {
    login: Option<Arc<Login>>,
    name: Option<Vec<u8>>,
}

impl HelloOptions {
    /// # Errors
    /// The word that is not an option, or lacks its arguments.
    fn parse(mut words: &[Vec<u8>]) -> Result<Self, &[u8]> {
        let mut options = Self::default();
        while let [option, rest @ ..] = words {
            words = match rest {
                [user, password, rest @ ..] if is(option, "AUTH") => {
                    options.login = Some(Arc::new(Login { user: user.clone(), password: password.clone() }));
                    rest
                }
                [name, rest @ ..] if is(option, "SETNAME") => {
                    options.name = Some(name.clone());
                    rest
                }
                _ => return Err(option),
            };
        }
        Ok(options)
    }
}

/// The server closes a connection that sends a longer word before it has logged in.
const MAX_UNAUTHENTICATED: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_of_hello_is_the_one_that_the_server_checks() {
        for (line, login) in [
            ("HELLO 2 AUTH adm garbage AUTH low lowpw", Some(("low", "lowpw"))),
            ("HELLO 3 SETNAME AUTH auth low lowpw", Some(("low", "lowpw"))),
            ("HELLO 3 SETNAME AUTH", None),
            ("HELLO 3 AUTH low lowpw what", None),
            ("HELLO 3 AUTH low", None),
            ("HELLO", None),
        ] {
            let found = Session::login_of(Local::Hello, &encode(line.split(' ')));
            let found = found.map(|login| (login.user.clone(), login.password.clone()));
            assert_eq!(found, login.map(|(user, password)| (user.into(), password.into())), "{line}");
        }
    }
}
