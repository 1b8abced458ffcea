//! HELLO: its options, which AUTH has too, and the reply to it.

use std::sync::Arc;

use bytes::Bytes;

use crate::command::words::{all, is};
use crate::upstream::identity::Login;

/// The login of AUTH, as the server reads it.
pub(crate) fn login_of_auth(command: &[u8]) -> Option<Arc<Login>> {
    let (user, password) = match &all(command)[1..] {
        [password] => (b"default".to_vec(), password.clone()),
        [user, password] => (user.clone(), password.clone()),
        _ => return None,
    };
    Some(Arc::new(Login { user, password }))
}

/// The options of HELLO. Of repeated ones the last counts, as in the server.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) login: Option<Arc<Login>>,
    pub(crate) name: Option<Vec<u8>>,
}

impl Options {
    /// The options of a HELLO. None if the server will refuse it.
    pub(crate) fn of(command: &[u8]) -> Self {
        let words = all(command);
        Self::parse(words.get(2..).unwrap_or_default()).unwrap_or_default()
    }

    /// # Errors
    /// The word that is not an option, or lacks its arguments.
    pub(crate) fn parse(mut words: &[Vec<u8>]) -> Result<Self, &[u8]> {
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

/// The server's reply to HELLO, with the number of a local client in place of the connection's.
pub(crate) fn with_id(reply: &Bytes, id: u64) -> Bytes {
    let Some(at) = reply.windows(ID.len()).position(|bytes| bytes == ID) else { return reply.clone() };
    let (before, after) = reply.split_at(at + ID.len());
    let rest = after.iter().position(|&byte| byte == b'\r').unwrap_or(after.len());
    [before, id.to_string().as_bytes(), &after[rest..]].concat().into()
}

/// The server's role in its reply to HELLO: `master` or `replica`.
pub(crate) fn role(reply: &[u8]) -> Option<String> {
    let at = reply.windows(ROLE.len()).position(|bytes| bytes == ROLE)?;
    let mut lines = reply[at + ROLE.len()..].split(|&byte| byte == b'\r');
    // After its length, and a line break.
    let role = lines.nth(1)?.get(1..)?;
    Some(role.escape_ascii().to_string())
}

/// Before the role, in both protocols.
const ROLE: &[u8] = b"$4\r\nrole\r\n$";
/// Before the number, in both protocols.
const ID: &[u8] = b"$2\r\nid\r\n:";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::words::encode;

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
            let found = Options::of(&encode(line.split(' '))).login;
            let found = found.map(|login| (login.user.clone(), login.password.clone()));
            assert_eq!(found, login.map(|(user, password)| (user.into(), password.into())), "{line}");
        }
    }

    #[test]
    fn the_role_is_found() {
        let reply =
            |role: &str| format!("%2\r\n$4\r\nrole\r\n${}\r\n{role}\r\n$2\r\nid\r\n:3\r\n", role.len());
        assert_eq!(role(reply("replica").as_bytes()).as_deref(), Some("replica"));
        assert_eq!(role(reply("master").as_bytes()).as_deref(), Some("master"));
        for other in ["", "-NOAUTH\r\n", "+OK\r\n", "%1\r\n$4\r\nrole\r\n$", "%1\r\n$4\r\nrole\r\n:1\r\n"] {
            assert_eq!(role(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn the_number_is_replaced() {
        let reply = |id: u64| Bytes::from(format!("%2\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:{id}\r\n"));
        assert_eq!(with_id(&reply(3), 71), reply(71));
        assert_eq!(with_id(&"-NOAUTH\r\n".into(), 71), "-NOAUTH\r\n");
    }
}
