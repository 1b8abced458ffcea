//! From the words of a command line to [`Args`].

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;

use clap::{CommandFactory, FromArgMatches};
use valkey_rdma_program::{matches_of, refusal};

use super::{Args, Instead, Password, Transport, check, refused, typed};
use crate::drive::{Choice, Libraries};
use crate::program::other_side::OtherSide;

impl Args {
    /// Reads a command line of the program without other libraries.
    #[cfg(test)]
    pub(crate) fn from_command_line<I>(line: I) -> Result<Args, Instead>
    where
        I: IntoIterator,
        I::Item: Into<OsString> + Clone,
    {
        Args::read(line, &Libraries::default())
    }

    /// The flags of the program with these libraries.
    pub(crate) fn flags(libraries: &Libraries) -> clap::Command {
        Args::command().mut_arg("library", |library| library.hide(libraries.names().next().is_none()))
    }

    /// Reads a command line whose first item is the program's name.
    pub(crate) fn read<I>(line: I, libraries: &Libraries) -> Result<Args, Instead>
    where
        I: IntoIterator,
        I::Item: Into<OsString> + Clone,
    {
        let instead = |error: clap::Error| {
            if error.use_stderr() {
                Instead::Refuse(refusal(&error))
            } else {
                Instead::Print(error.render().to_string())
            }
        };
        let matches = matches_of(refused::with_refused(Args::flags(libraries)), line).map_err(instead)?;
        refused::refuse(&matches)?;
        let mut args = Args::from_arg_matches(&matches).map_err(instead)?;
        if args.rdma {
            args.transport = Transport::Rdma;
        }
        args.through = args.library.as_deref().map(|name| of(libraries, name)).transpose()?;
        if let Some(OtherSide { library: Some(name), through, .. }) = &mut args.compare_with {
            *through = Some(of(libraries, name)?);
        }
        if args.direct {
            args.through = Some(Choice::direct(args.longest_value(), args.verify));
        }
        if args.cluster || args.through.is_some() {
            args.tasks_per_connection.get_or_insert(1);
        }
        if args.password.is_none() && args.url.is_none() {
            args.password = Password::from_environment();
        }
        check::check(&args, &matches)?;
        args.typed = typed::line(&Args::command(), &matches);
        Ok(args)
    }

    /// Reads the last argument of the command, if it comes from standard input (`-x`).
    pub(crate) fn read_stdin(&mut self) -> Result<(), Instead> {
        if self.stdin {
            let mut last = Vec::new();
            io::stdin()
                .lock()
                .read_to_end(&mut last)
                .map_err(|error| Instead::Refuse(format!("-x: standard input cannot be read: {error}")))?;
            self.command.push(OsString::from_vec(last));
        }
        Ok(())
    }
}

/// The library of this name.
fn of(libraries: &Libraries, name: &str) -> Result<Choice, Instead> {
    libraries.named(name).cloned().ok_or_else(|| {
        let names: Vec<&str> = libraries.names().collect();
        Instead::Refuse(match names.as_slice() {
            [] => "this program has no other client library".to_owned(),
            names => format!("unknown client library {name}; there are {}", names.join(", ")),
        })
    })
}
