//! The command line as it may be published.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use super::check::flag;

/// The flags whose values name nothing and open nothing. Of the others, a published command line has `...`.
const SHOWN: [&str; 9] =
    ["port", "transport", "rx_size", "poll", "dbnum", "cells", "rounds", "duration", "reply_timeout"];

/// The flags that were given.
pub(super) fn line(command: &Command, matches: &ArgMatches) -> String {
    let mut words = vec![command.get_name().to_owned()];
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        words.push(flag(arg));
        if arg.get_action().takes_values() {
            let values = matches.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy());
            words.push(if SHOWN.contains(&id) {
                values.collect::<Vec<_>>().join(",")
            } else {
                "...".to_owned()
            });
        }
    }
    words.join(" ")
}
