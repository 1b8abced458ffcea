//! How a program reports an error: in one line on standard error.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use valkey_rdma_transport::address::AddressError;

use crate::printable::printable;
use crate::shown::shown;
use crate::style::Style;

/// Prints `error: MESSAGE` on standard error, in one line however many the message has, and [`printable`].
pub fn complain(message: &str) {
    let words: Vec<&str> = message.split_whitespace().collect();
    let style = Style::of(&io::stderr());
    // Nothing can be done if standard error is closed.
    let _ = writeln!(io::stderr(), "{} {}", style.red("error:"), printable(&words.join(" ")));
}

/// [Complains](complain) about what has failed, and returns the exit status 1.
pub fn fail(message: &str) -> ExitCode {
    complain(message);
    ExitCode::FAILURE
}

/// [Complains](complain) about a command line or configuration that makes no sense, and returns the exit status 2.
pub fn refuse(message: &str) -> ExitCode {
    complain(message);
    ExitCode::from(2)
}

/// Why clap refuses a command line, without the usage and tips that follow: `--help` shows these too. A URL in the wrong place is
/// [shown](crate::shown()) without its login.
#[must_use]
pub fn refusal(error: &clap::Error) -> String {
    let text = without_logins(error);
    let reason = text.split("\n\n").next().unwrap_or(&text);
    let words: Vec<&str> = reason.strip_prefix("error: ").unwrap_or(reason).split_whitespace().collect();
    words.join(" ") + "; see --help"
}

/// What clap says, with what may be [`shown`] of the words that it refuses.
fn without_logins(error: &clap::Error) -> String {
    let mut text = error.render().to_string();
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand] {
        let Some(ContextValue::String(word)) = error.get(kind) else { continue };
        let hidden = shown(word);
        if hidden == *word {
            continue;
        }
        text = match (kind, error.get(ContextKind::InvalidArg)) {
            (ContextKind::InvalidValue, Some(flag)) => {
                format!("invalid value '{hidden}' for '{flag}'{}", shown_reason(error))
            }
            _ => text.replace(word, &hidden),
        };
    }
    text
}

/// What the flag's own parser says, unless it may quote a part of the value.
fn shown_reason(error: &clap::Error) -> String {
    let reason = error.source().and_then(|reason| match reason.downcast_ref() {
        Some(ShownError(text)) => Some(text.clone()),
        // It says which form an address has, and not which one was given.
        None => match reason.downcast_ref() {
            Some(form @ AddressError::Form) => Some(form.to_string()),
            _ => None,
        },
    });
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

/// Why a flag's parser refuses a value, with no more of the value than may be [`shown`]. [`refusal`] repeats such a reason also if the
/// value may have a password.
#[derive(Debug)]
pub struct ShownError(pub String);

impl fmt::Display for ShownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ShownError {}

/// An error and all its causes in one line. A cause that the text before it ends with is not repeated.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Caused(&'static str, Option<Box<Caused>>);

    impl fmt::Display for Caused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Caused {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn every_cause_is_named_once() {
        let cause = Caused("out of memory", None);
        let call = Caused("ibv_alloc_pd failed: out of memory", Some(Box::new(cause)));
        let error = Caused("the server could not start", Some(Box::new(call)));
        assert_eq!(error_chain(&error), "the server could not start: ibv_alloc_pd failed: out of memory");
    }

    #[test]
    fn a_wrong_flag_is_refused_in_one_line() {
        let error =
            clap::Command::new("program").try_get_matches_from(["program", "--wrong"]).expect_err("wrong");
        assert_eq!(refusal(&error), "unexpected argument '--wrong' found; see --help");
    }

    #[test]
    fn a_url_in_the_wrong_place_is_refused_without_its_login() {
        let number =
            |text: &str| text.parse::<u8>().map_err(|_| format!("\"{}\" is not a number", &text[9..]));
        let command = || {
            clap::Command::new("program")
                .arg(clap::Arg::new("number").long("number").value_name("N").value_parser(number))
        };
        for (line, expected) in [
            (&["rdma://u:secret@h"][..], "unexpected argument 'rdma://***' found; see --help"),
            (&["u:secret@h"], "unexpected argument '***' found; see --help"),
            (&["--number", "rdma://u:secret@h"], "invalid value 'rdma://***' for '--number <N>'; see --help"),
            (&["--number", "u:1/secret?"], "invalid value '***' for '--number <N>'; see --help"),
        ] {
            let error = command().try_get_matches_from(["program"].iter().chain(line)).expect_err("wrong");
            assert_eq!(refusal(&error), expected);
        }
        let scheme = |_: &str| Err::<u8, _>(ShownError("use tcp:ADDR:PORT".to_owned()));
        for (parser, reason) in [
            (clap::builder::ValueParser::new(scheme), "use tcp:ADDR:PORT"),
            (
                clap::builder::ValueParser::new(valkey_rdma_transport::address::parse),
                "use ADDR:PORT, with brackets",
            ),
        ] {
            let argument = clap::Arg::new("listen").long("listen").value_name("WHERE").value_parser(parser);
            let line = ["program", "--listen", "tls://u:secret@h"];
            let error =
                clap::Command::new("program").arg(argument).try_get_matches_from(line).expect_err("wrong");
            let text = refusal(&error);
            assert!(text.starts_with("invalid value 'tls://***' for '--listen <WHERE>': "), "{text}");
            assert!(text.contains(reason) && !text.contains("secret"), "{text}");
        }
        let command = clap::Command::new("program").subcommand(clap::Command::new("check"));
        let error = command.try_get_matches_from(["program", "rdma://u:secret@h"]).expect_err("wrong");
        assert_eq!(refusal(&error), "unrecognized subcommand 'rdma://***'; see --help");
    }
}
