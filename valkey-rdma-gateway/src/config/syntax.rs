//! [`parse`]: reads the text of a configuration, and names everything in it that has no meaning.

use std::ops::Range;

use serde::Deserialize;
use valkey_rdma_program::shown;

use super::Config;
use crate::error::GatewayError;
use crate::limits::Limits;

/// Reads a configuration. Settings that are unknown, or of another kind, are named together, and with them what is wrong with the rest.
pub(super) fn parse(text: &str) -> Result<Config, GatewayError> {
    // One mistake of TOML makes everything behind it unreliable.
    toml::from_str::<toml::Table>(text).map_err(|error| mistake(text, &error))?;
    let (mut rest, mut mistakes) = (text.to_owned(), Vec::new());
    // A line was taken out without which another one would be wrong.
    let mut needed = false;
    loop {
        let error = match toml::from_str(&rest) {
            Ok(config) if mistakes.is_empty() => return Ok(config),
            Ok(config) if !needed => {
                return Err(with_mistakes_of(&config, mistakes));
            }
            Ok(_) => break,
            Err(error) => error,
        };
        // What is missing may stand in a line that was taken out.
        if mistakes.is_empty() || !error.message().starts_with("missing field") {
            mistakes.push((error.span().map(|span| span.start), mistake(text, &error)));
        }
        needed |= error.span().is_some_and(|span| NEEDED.contains(&name_before(text, span.start)));
        if mistakes.len() == MOST || !take_out(&mut rest, error.span()) {
            break;
        }
    }
    let mut all = sorted(mistakes);
    all.extend(mistakes_of_limits(&rest));
    Err(GatewayError::several(all))
}

/// What is wrong with the limits in a text whose other parts cannot be read.
fn mistakes_of_limits(text: &str) -> Vec<GatewayError> {
    #[derive(Deserialize)]
    struct Only {
        #[serde(default)]
        limits: Limits,
    }
    let mistakes = toml::from_str(text).map_or_else(|_| Vec::new(), |Only { limits }| limits.mistakes());
    mistakes.into_iter().map(GatewayError::Config).collect()
}

/// The mistakes of the text, and those of what is left of it.
fn with_mistakes_of(config: &Config, mistakes: Vec<(Option<usize>, GatewayError)>) -> GatewayError {
    let mut all = sorted(mistakes);
    match config.check() {
        Ok(()) => {}
        Err(GatewayError::Several(more)) => all.extend(more),
        Err(one) => all.push(one),
    }
    GatewayError::several(all)
}

fn sorted(mut mistakes: Vec<(Option<usize>, GatewayError)>) -> Vec<GatewayError> {
    mistakes.sort_by_key(|(place, _)| *place);
    mistakes.into_iter().map(|(_, mistake)| mistake).collect()
}

/// The name of the setting whose value begins here, or nothing.
fn name_before(text: &str, place: usize) -> &str {
    let line = text.get(..place).unwrap_or_default().rsplit('\n').next().unwrap_or_default();
    line.split_once('=').map_or("", |(name, _)| name.trim())
}

/// Replaces the lines of a mistake by spaces. `false` if they are not those of a setting.
fn take_out(text: &mut String, mistake: Option<Range<usize>>) -> bool {
    let Some(mistake) = mistake else { return false };
    let Some((before, after)) = text.get(..mistake.start).zip(text.get(mistake.end..)) else { return false };
    let begin = before.rfind('\n').map_or(0, |at| at + 1);
    let end = after.find('\n').map_or(text.len(), |at| mistake.end + at);
    let lines = text.get(begin..end).unwrap_or_default();
    let is_setting = lines.lines().next().is_some_and(|first| first.contains('='));
    if is_setting {
        let blank: String = lines.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
        text.replace_range(begin..end, &blank);
    }
    // It may have been the first line of several.
    is_setting && toml::from_str::<toml::Table>(text).is_ok()
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
    // As people call them.
    let message = ["usize", "u64", "u16"].iter().fold(message.to_owned(), |message, kind| {
        message.replace(&format!("expected {kind}"), "expected a whole number")
    });
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let name = name_before(text, before.len());
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let name = match name {
        "" => String::new(),
        name if name.bytes().all(is_name) => format!("{name}: "),
        // The middle of a value.
        _ => String::new(),
    };
    GatewayError::Config(format!("line {}: {name}{message}", before.matches('\n').count() + 1))
}

/// Settings on which the meaning of others depends.
const NEEDED: [&str; 2] = ["cluster", "password_file"];
/// Mistakes that are named at most.
const MOST: usize = 20;
