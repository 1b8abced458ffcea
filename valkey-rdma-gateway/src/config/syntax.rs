//! [`parse`]: reads the text of a configuration. Errors of TOML name the line, and show nothing of it that may be a password.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use valkey_rdma_program::shown;

use super::Config;
use crate::error::GatewayError;
use crate::front::listen::Listen;

/// Reads a configuration, and checks nothing that TOML does not.
pub(super) fn parse(text: &str) -> Result<Config, GatewayError> {
    toml::from_str(text).map_err(|error| mistake(text, &error))
}

/// A string, or a list of strings.
pub(super) fn one_or_several<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a string, or a list of strings")]
    enum Strings {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Strings::deserialize(value)? {
        Strings::One(text) => vec![text],
        Strings::Several(texts) => texts,
    })
}

/// An address to listen on, or a list of them.
pub(super) fn addresses<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<Listen>, D::Error> {
    one_or_several(value)?.iter().map(|text| text.parse::<Listen>().map_err(D::Error::custom)).collect()
}

/// Says what is wrong, and in which line.
fn mistake(text: &str, error: &toml::de::Error) -> GatewayError {
    // Not the line itself, nor a value that may be a URL: there may be a password in it. `***` may be shown.
    let may_be_shown = |message: &&str| {
        let rest = message.replace("://***", "").replace("\"***\"", "");
        shown(&rest) == rest
    };
    let message = Some(error.message()).filter(may_be_shown);
    let message = message.unwrap_or("a value is not of the kind that is expected here");
    // Nothing else is only a list.
    let is_route = message.ends_with("expected a sequence");
    let message = if is_route { "write [[route]], because there may be several" } else { message };
    // As people call them.
    let message = ["usize", "u64", "u16"].iter().fold(message.to_owned(), |message, kind| {
        message.replace(&format!("expected {kind}"), "expected a whole number")
    });
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    let name = line.split_once('=').map_or("", |(name, _)| name.trim());
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let name = match name {
        name if !name.is_empty() && name.bytes().all(is_name) => format!("{name}: "),
        // The middle of a value.
        _ => String::new(),
    };
    GatewayError::Config(format!("line {}: {name}{message}", before.matches('\n').count() + 1))
}
