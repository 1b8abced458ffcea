//! Error replies, with Valkey's texts.

use std::borrow::Cow;

use valkey_rdma_server::Reply;

/// A command's error reply: a code, a blank, and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure(Cow<'static, str>);

impl Failure {
    pub(super) const WRONG_TYPE: Self =
        Self::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(super) const NO_SUCH_KEY: Self = Self::new("ERR no such key");
    pub(super) const OUT_OF_RANGE: Self = Self::new("ERR value is out of range");
    pub(super) const NOT_NEGATABLE: Self = Self::new(
        "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
    );
    pub(super) const NOT_POSITIVE: Self = Self::new("ERR value is out of range, must be positive");
    pub(super) const NOT_A_FLOAT: Self = Self::new("ERR value is not a valid float");
    pub(super) const OVERFLOW: Self = Self::new("ERR increment or decrement would overflow");
    pub(super) const SYNTAX: Self = Self::new("ERR syntax error");
    pub(super) const NOT_AN_INTEGER: Self = Self::new("ERR value is not an integer or out of range");
    pub(super) const NOT_AUTHENTICATED: Self = Self::new("NOAUTH Authentication required.");
    pub(super) const WRONG_PASSWORD: Self =
        Self::new("WRONGPASS invalid username-password pair or user is disabled.");

    pub(super) const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub(super) fn wrong_arity(command: &str) -> Self {
        Self(format!("ERR wrong number of arguments for '{command}' command").into())
    }

    pub(super) fn only_listening(command: &str) -> Self {
        Self(
            format!(
                "ERR Can't execute '{command}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed \
                 in this context"
            )
            .into(),
        )
    }

    pub(super) fn invalid_expire_time(command: &str) -> Self {
        Self(format!("ERR invalid expire time in '{command}' command").into())
    }

    /// `container` is the command in upper case.
    pub(super) fn unknown_subcommand(container: &str, subcommand: &[u8]) -> Self {
        let subcommand = String::from_utf8_lossy(&subcommand[..subcommand.len().min(128)]);
        Self(format!("ERR unknown subcommand '{subcommand}'. Try {container} HELP.").into())
    }

    /// Arguments that fit no form of a known subcommand. `container` is the command in upper case.
    pub(super) fn wrong_subcommand_args(container: &str, subcommand: &[u8]) -> Self {
        let subcommand = String::from_utf8_lossy(&subcommand[..subcommand.len().min(128)]);
        Self(
            format!("ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try {container} HELP.")
                .into(),
        )
    }
}

/// The text of an error reply that the server library has made.
impl From<Reply> for Failure {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Error(text) => Self(text),
            _ => Self::SYNTAX,
        }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        Self::Error(failure.0)
    }
}
