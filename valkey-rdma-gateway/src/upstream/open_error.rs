//! [`OpenError`]: why there is no connection to a server, its counter, and what clients get.
//!
//! A client that gets no answer because the server is away is closed, as the server's own end would close it. Client libraries connect
//! again then, and send again what they always send again. An error reply with a code that they do not know would end programs that
//! survive the loss of a connection: workers of Celery, RQ and Bull. So an error reply says only what a new connection cannot change.

use std::fmt;

use bytes::Bytes;
use valkey_rdma_resp::without_arguments;

use crate::observe::metrics::Metrics;

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(crate) enum OpenError {
    /// The server's error reply, line end included. That to a login comes from [`of_login`](Self::of_login).
    Refused(Bytes),
    /// The same to SELECT of a database that a client has chosen. That of the URL is the operator's choice.
    NoDatabase(Bytes),
    /// The settings of the gateway are in the way: its limits, or `--cluster` in front of a server without a cluster.
    Settings(String),
    /// No connection could be made, or the one that there was is lost.
    Unreachable(String),
}

impl OpenError {
    /// The server's refusal of a login, without the arguments that it quotes of a command that it does not know: the password may be one.
    pub(crate) fn of_login(reply: &Bytes) -> Self {
        let shown = without_arguments(reply);
        if shown.len() == reply.len() {
            return Self::Refused(reply.clone());
        }
        Self::Refused([shown, b"\r\n"].concat().into())
    }

    /// This refusal of SELECT, if clients have chosen the database. A login may lack the permission or be missing, and a script may run: these have
    /// codes of their own.
    pub(crate) fn of_choice(self) -> Self {
        match self {
            Self::Refused(reply) if reply.starts_with(b"-ERR ") => Self::NoDatabase(reply),
            other => other,
        }
    }

    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::NoDatabase(_))
    }

    /// Whether the server refused the login, or required one.
    pub(crate) fn is_about_login(&self) -> bool {
        matches!(self, Self::Refused(reply) if is_about_login(reply))
    }

    /// Whether the server refused who asks, whatever the database is.
    pub(crate) fn refuses_any_database(&self) -> bool {
        matches!(self, Self::Refused(reply) if reply.starts_with(b"-NOAUTH")) || self.is_wrong_password()
    }

    /// Whether the server refused the password.
    pub(crate) fn is_wrong_password(&self) -> bool {
        matches!(self, Self::Refused(reply) if reply.starts_with(b"-WRONGPASS"))
    }

    /// Whether the server has no room for another connection.
    pub(crate) fn is_server_full(&self) -> bool {
        matches!(self, Self::Refused(reply) if reply.starts_with(b"-ERR max number of clients"))
    }

    /// Whether there is no room for another connection, here or at the server. Commands on connections that there are may run.
    pub(crate) fn is_about_room(&self) -> bool {
        matches!(self, Self::Settings(_)) || self.is_server_full()
    }

    /// Whether it is the same reason, in the same words.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.is_refusal() == other.is_refusal() && self.to_string() == other.to_string()
    }

    /// Counts commands that were not sent because of it. Behind a refused login or database, which is counted as such, no server was missed.
    pub(crate) fn count_unsent(&self, commands: u64, metrics: &Metrics) {
        if !self.is_about_login() && !matches!(self, Self::NoDatabase(_)) {
            metrics.not_sent.add(commands);
        }
    }

    /// Counts it as a failed connect, or, if the server was reached and refused the login or the database, as that.
    pub(crate) fn count(&self, metrics: &Metrics) {
        let counter = match self {
            Self::NoDatabase(_) => &metrics.databases_refused,
            _ if self.is_about_login() => &metrics.logins_refused,
            _ => &metrics.connect_failures,
        };
        counter.add(1);
    }

    /// What the log says of a connection that cannot be made because of it.
    pub(crate) fn headline(&self) -> &'static str {
        match self {
            Self::NoDatabase(_) => "the server refused the database that a client has chosen",
            _ => "cannot connect",
        }
    }

    /// The error reply for a command that was not sent. `None`: its client is closed.
    pub(crate) fn reply(&self) -> Option<Bytes> {
        match self {
            Self::Refused(reply) | Self::NoDatabase(reply) => Some(reply.clone()),
            Self::Settings(text) => {
                Some(format!("-NOUPSTREAM the command was not sent: {}\r\n", one_line(text)).into())
            }
            Self::Unreachable(_) => None,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reply) | Self::NoDatabase(reply) => {
                f.write_str(String::from_utf8_lossy(reply).trim_end())
            }
            Self::Settings(text) | Self::Unreachable(text) => f.write_str(text),
        }
    }
}

/// Whether an error reply refuses a login, or requires one.
pub(crate) fn is_about_login(reply: &[u8]) -> bool {
    ["-NOAUTH", "-WRONGPASS", "-NOPERM"].iter().any(|code| reply.starts_with(code.as_bytes()))
}

/// A text that fits into an error reply.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
