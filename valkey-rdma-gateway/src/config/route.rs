//! [`Route`]: what the clients of a listener are connected to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;
use valkey_rdma_transport::tls::TlsAcceptor;

use crate::upstream::backend::Backend;

/// A server, and how clients share connections to it.
pub(crate) struct Route {
    pub(crate) backend: Arc<Backend>,
    pub(crate) share: Share,
    /// Encrypts the clients of the listeners that ask for it: each reload reads the certificates into a new one.
    pub(crate) tls: Option<TlsAcceptor>,
    /// The prefix of the commands of direct transfers, if listeners offer these.
    pub(crate) direct_prefix: Option<Arc<str>>,
}

/// Whether local clients share connections to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Share {
    /// Shared, except by clients that have state in their connection: these get a private one until the state ends.
    #[default]
    Auto,
    /// Each local client has its own connection to the server. Bytes are passed on unseen.
    Never,
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            "always" => Err(NO_ALWAYS.to_owned()),
            _ => Err(format!("\"{text}\" is not auto or never")),
        }
    }
}

impl TryFrom<String> for Share {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Never => "never",
        })
    }
}

/// For configurations of earlier versions.
const NO_ALWAYS: &str = "share=always was removed: use auto; to refuse commands with state, deny them to the server's user with ACL SETUSER";
