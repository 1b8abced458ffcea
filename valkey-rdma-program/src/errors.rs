//! How a program reports an error: in one line on standard error.

use std::error::Error;
use std::io::{self, Write};

use clap::error::{ContextKind, ContextValue};

use crate::shown::shown;
use crate::style::Style;

/// Prints `error: MESSAGE` on standard error, in one line however many the message has.
pub fn complain(message: &str) {
    let words: Vec<&str> = message.split_whitespace().collect();
    let style = Style::of(&io::stderr());
    // Nothing can be done if standard error is closed.
    let _ = writeln!(io::stderr(), "{} {}", style.red("error:"), words.join(" "));
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
            // What follows is of the flag's own parser, which may quote a part of the value.
            (ContextKind::InvalidValue, Some(flag)) => format!("invalid value '{hidden}' for '{flag}'"),
            _ => text.replace(word, &hidden),
        };
    }
    text
}

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

    impl std::fmt::Display for Caused {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
        let command = clap::Command::new("program").subcommand(clap::Command::new("check"));
        let error = command.try_get_matches_from(["program", "rdma://u:secret@h"]).expect_err("wrong");
        assert_eq!(refusal(&error), "unrecognized subcommand 'rdma://***'; see --help");
    }
}
