//! A password in front of any handler.

use bytes::Bytes;
use valkey_rdma_resp::{Command, Reply};

use crate::handler::{Handler, Peer};

/// A [`Handler`] that lets commands through to another one once the peer has given the password, with `AUTH` or `HELLO`
/// as Valkey's clients do. Until then they are answered with `-NOAUTH`, and the peer is not
/// [trusted](Handler::trusts).
///
/// It answers `AUTH`, and `HELLO` when that brings a password; everything else is the inner handler's. `QUIT` and `RESET`
/// always reach it; after `RESET` the password is wanted again.
///
/// ```
/// use valkey_rdma_mock::Mock;
/// use valkey_rdma_server::{Password, Server};
///
/// let any_port = "127.0.0.1:0".parse().unwrap();
/// let server = Server::builder(Password::new("secret", Mock::new())).tcp(any_port);
/// ```
pub struct Password<H> {
    password: Bytes,
    inner: H,
}

impl<H> std::fmt::Debug for Password<H> {
    /// Does not tell the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Password").finish_non_exhaustive()
    }
}

impl<H: Handler> Password<H> {
    /// Wants `password` before `inner` sees a command.
    pub fn new(password: impl Into<Bytes>, inner: H) -> Self {
        Self { password: password.into(), inner }
    }

    /// Whether the user is the only one, `default`, and the password right. Takes the same time whatever is wrong with a password
    /// of the right length.
    fn accepts(&self, user: &[u8], password: &[u8]) -> bool {
        let differences = self.password.iter().zip(password).fold(0, |sum, (one, other)| sum | (one ^ other));
        user == b"default" && self.password.len() == password.len() && differences == 0
    }
}

/// Where `AUTH user password` stands among the arguments of a `HELLO`: `version [AUTH user password] [SETNAME name]`, the
/// options in any order.
fn auth_option(args: &[Bytes]) -> Option<usize> {
    let mut at = 1;
    loop {
        match args.get(at)? {
            option if option.eq_ignore_ascii_case(b"AUTH") => return (at + 2 < args.len()).then_some(at),
            option if option.eq_ignore_ascii_case(b"SETNAME") => at += 2,
            _ => return None,
        }
    }
}

/// State of a connection to a [`Password`]: whether the password was given, and the inner handler's.
#[derive(Debug)]
pub struct Guarded<S> {
    admitted: bool,
    inner: S,
}

impl<H: Handler> Handler for Password<H> {
    type Session = Guarded<H::Session>;

    fn session(&self, peer: &Peer) -> Self::Session {
        Guarded { admitted: false, inner: self.inner.session(peer) }
    }

    async fn call(&self, peer: &mut Peer, session: &mut Self::Session, command: Command) -> Reply {
        let args = command.args();
        let place = if command.is("HELLO") { auth_option(args) } else { None };
        let credentials: Option<(&[u8], &[u8])> = match (args, place) {
            ([password], _) if command.is("AUTH") => Some((b"default", password)),
            ([user, password], _) if command.is("AUTH") => Some((user, password)),
            (_, Some(at)) => Some((&args[at + 1], &args[at + 2])),
            _ => None,
        };
        if let Some((user, password)) = credentials {
            if !self.accepts(user, password) {
                return Reply::error("WRONGPASS invalid username-password pair or user is disabled.");
            }
            let Some(at) = place else {
                session.admitted = true;
                return Reply::OK;
            };
            // The greeting itself is the inner handler's, which knows of no password. One that it refuses admits nobody.
            let rest = args[..at].iter().chain(&args[at + 3..]).cloned().collect::<Vec<_>>();
            let reply = self.inner.call(peer, &mut session.inner, Command::new("HELLO", rest)).await;
            session.admitted |= !matches!(reply, Reply::Error(_));
            return reply;
        }
        if command.is("RESET") {
            session.admitted = false;
        } else if !session.admitted && !command.is("QUIT") {
            return Reply::error("NOAUTH Authentication required.");
        }
        self.inner.call(peer, &mut session.inner, command).await
    }

    fn trusts(&self, session: &Self::Session) -> bool {
        session.admitted && self.inner.trusts(&session.inner)
    }
}
