//! [`Route`]: what the clients of a listener are connected to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;

use crate::pool::Pool;

/// A server, and how clients share connections to it.
pub(crate) struct Route {
    pub(crate) pool: Arc<Pool>,
    pub(crate) share: Share,
}

/// Whether local clients share connections to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// Shared, except by clients that have state in their connection: these get a private one until the state ends.
    #[default]
    Auto,
    /// Each local client has its own connection to the server. Bytes are passed on unseen.
    Never,
    /// Always shared. Commands that need a private connection are refused.
    Always,
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            "always" => Ok(Self::Always),
            _ => Err(format!("\"{text}\" is not auto, never or always")),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Never => "never",
            Self::Always => "always",
        })
    }
}
