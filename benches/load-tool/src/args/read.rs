//! From the words of a command line to [`Args`].

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};
use valkey_rdma_program::refusal;

use super::{Args, Instead, Password, Transport, check, refused};

impl Args {
    /// Reads a command line whose first item is the program's name.
    pub(crate) fn from_command_line<I>(line: I) -> Result<Args, Instead>
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
        let matches = refused::with_refused(Args::command()).try_get_matches_from(line).map_err(instead)?;
        refused::refuse(&matches)?;
        let mut args = Args::from_arg_matches(&matches).map_err(instead)?;
        if args.rdma {
            args.transport = Transport::Rdma;
        }
        if args.cluster {
            args.tasks_per_connection.get_or_insert(1);
        }
        if args.password.is_none() && args.url.is_none() {
            args.password = Password::from_environment(|name| std::env::var(name).ok());
        }
        check::check(&args, &matches)?;
        Ok(args)
    }
}
