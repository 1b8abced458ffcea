//! [`matches_of`]: what a command line says, with everything that its flags require.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{ArgMatches, Command, Id};

/// What a command line says. Its first word is the program's name.
///
/// clap forgets a requirement if the flag that is required conflicts with another one that was given. If `--target` requires `--sweep`, and
/// `--sweep` conflicts with `--compare`, then `--compare --target` would pass, and `--target` have no effect. So the requirements are
/// checked a second time, without conflicts.
///
/// # Errors
/// Why clap refuses the command line, or what it asks for instead, such as help.
pub fn matches_of<W>(command: Command, words: impl IntoIterator<Item = W>) -> Result<ArgMatches, clap::Error>
where
    W: Into<OsString>,
{
    let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    let matches = command.clone().try_get_matches_from(&words)?;
    without_conflicts(command).try_get_matches_from(words)?;
    Ok(matches)
}

/// The command and its subcommands, all of whose flags go together.
fn without_conflicts(mut command: Command) -> Command {
    // A group that only flags name exists from here on.
    command.build();
    let groups: Vec<Id> = command.get_groups().map(|group| group.get_id().clone()).collect();
    let command = groups.iter().fold(command, |command, id| {
        command.mut_group(id, |group| group.multiple(true).conflicts_with(Resettable::<Id>::Reset))
    });
    command.mut_args(|arg| arg.conflicts_with(Resettable::<Id>::Reset)).mut_subcommands(without_conflicts)
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction};

    use super::*;
    use crate::refusal;

    /// Two modes that exclude each other, a flag that excludes one of them, and flags that require a mode. The subcommand is likewise.
    fn command() -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let check = Command::new("check").args([
            flag("one"),
            flag("other").conflicts_with("one"),
            flag("part").requires("one"),
        ]);
        Command::new("program")
            .args([flag("sweep").group("mode"), flag("compare").group("mode")])
            .arg(flag("idle").conflicts_with("compare"))
            .args([
                flag("target").requires("sweep"),
                flag("rounds").requires("compare"),
                flag("arrivals").requires("mode"),
            ])
            .subcommand(check)
    }

    fn read(line: &str) -> Result<ArgMatches, String> {
        let words = std::iter::once("program").chain(line.split_whitespace());
        matches_of(command(), words).map_err(|error| refusal(&error))
    }

    #[test]
    fn a_requirement_holds_beside_flags_that_exclude_what_is_required() {
        for (line, missing) in [
            ("--target", "--sweep"),
            // Of the same group.
            ("--compare --target", "--sweep"),
            ("--sweep --rounds", "--compare"),
            ("--idle --rounds", "--compare"),
            ("check --other --part", "--one"),
        ] {
            let expected =
                format!("the following required arguments were not provided: {missing}; see --help");
            assert_eq!(read(line).expect_err(line), expected, "{line}");
        }
        for line in [
            "",
            "--idle",
            "--sweep --target",
            "--compare --rounds",
            "--sweep --arrivals",
            "check --one --part",
        ] {
            assert!(read(line).is_ok(), "{line}: {:?}", read(line));
        }
    }

    #[test]
    fn flags_that_exclude_each_other_are_refused() {
        for line in ["--sweep --compare", "--idle --compare --rounds", "check --one --other"] {
            let reason = read(line).expect_err(line);
            assert!(reason.contains("cannot be used with"), "{line}: {reason}");
        }
    }
}
