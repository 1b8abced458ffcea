//! valkey-benchmark's flags that this tool does not have, and why.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::Instead;

/// Each flag with its reason.
pub(crate) const REFUSED: [(&str, &str); 6] = [
    ("rfr", "--cluster measures primaries only: give a replica as a server of its own"),
    ("mptcp", "multipath TCP is set by the kernel: run the tool under mptcpize"),
    ("fuzz", FUZZ),
    ("fuzz-mode", FUZZ),
    ("fuzz-loglevel", FUZZ),
    ("cacertdir", "issuers are read from one file: cat DIR/*.pem > ca.pem, and give --cacert ca.pem"),
];

const FUZZ: &str = "this tool sends no random commands: use valkey-benchmark";

/// `command` with the flags, so that they are known and can be refused.
pub(super) fn with_refused(command: Command) -> Command {
    let flags = REFUSED
        .map(|(flag, _)| Arg::new(flag).long(flag).hide(true).num_args(0..=1).action(ArgAction::Append));
    let obsolete = Arg::new("errors").short('e').hide(true).action(ArgAction::SetTrue);
    command.args(flags).arg(obsolete)
}

/// Refuses a command line with one of them.
pub(super) fn refuse(matches: &ArgMatches) -> Result<(), Instead> {
    if matches.get_flag("errors") {
        return Err(Instead::Refuse(
            "-e is obsolete: errors are always counted by kind, and the first ones are printed".to_owned(),
        ));
    }
    match REFUSED.iter().find(|(flag, _)| matches.contains_id(flag)) {
        Some((flag, reason)) => Err(Instead::Refuse(format!("--{flag}: {reason}"))),
        None => Ok(()),
    }
}
