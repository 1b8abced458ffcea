//! Flags that contradict each other by their values. Those that never go together say so where they are declared.

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};
use valkey_rdma_program::shown;

use super::{Args, Instead, Transport};
use crate::program::other_side::OtherSide;
use crate::workload::{DefaultTest, SHARED_FROM};

/// The headings of the flags that open connections, all of which `-I` and `--evidence` use.
const OF_CONNECTIONS: [&str; 3] = ["Server", "RDMA", super::tls::HEADING];
/// What else `-I` uses. Any other flag is refused, so that a new one does not pass without effect.
const OF_IDLE: [&str; 6] =
    ["idle", "clients", "tasks_per_connection", "threads", "runtime_threads", "enable_tracking"];

/// What else `--evidence` uses, likewise.
const OF_EVIDENCE: [&str; 7] =
    ["evidence", "cells", "with_addresses", "compare", "rounds", "duration", "reply_timeout"];

/// Refuses what makes no sense together.
pub(super) fn check(args: &Args, matches: &ArgMatches) -> Result<(), Instead> {
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let command = Args::command();
    let modes = [
        (args.idle, &OF_IDLE[..], "-I sends no requests"),
        (args.evidence.is_some(), &OF_EVIDENCE, "--evidence measures its own cells"),
    ];
    if let Some((_, ids, reason)) = modes.into_iter().find(|(is_given, ..)| *is_given) {
        let is_of_mode = |arg: &clap::Arg| {
            arg.get_help_heading().is_some_and(|heading| OF_CONNECTIONS.contains(&heading))
                || ids.contains(&arg.get_id().as_str())
        };
        let unused = command.get_arguments().find(|arg| given(arg.get_id().as_str()) && !is_of_mode(arg));
        if let Some(arg) = unused {
            return refuse(format!("{reason}: leave out {}", flag(arg)));
        }
    }
    let flag_of = |id: &str| {
        let arg = command.get_arguments().find(|arg| arg.get_id() == id);
        arg.map_or_else(String::new, flag)
    };
    let (all, chosen) = (DefaultTest::all(), args.chosen_tests());
    let mut of_tests = all.iter().filter_map(DefaultTest::flag).filter(|&id| given(id));
    if let Some(id) = of_tests.find(|&id| chosen.iter().all(|test| test.flag() != Some(id))) {
        let names = all.iter().filter(|test| test.flag() == Some(id)).flat_map(|test| test.names);
        let names = names.copied().collect::<Vec<_>>().join(" and ");
        return refuse(format!("{} is for {names}, and no such test runs: leave it out", flag_of(id)));
    }
    let Some(matrix) = &args.matrix else { return check_run(args) };
    if let Some(axis) = matrix.axes().find(|axis| given(axis.id())) {
        let flag = flag_of(axis.id());
        return refuse(format!("--matrix sets {} at every point, so leave out {flag}", axis.name()));
    }
    matrix.combinations().iter().try_for_each(|point| check_run(&args.at(point)))
}

/// Refuses what makes no sense in one run: that of the flags, or of one point of `--matrix`.
fn check_run(args: &Args) -> Result<(), Instead> {
    let socket = args.socket.as_ref().map(|path| path.to_string_lossy());
    if let Some(url) = socket.filter(|path| path.contains("://")) {
        return refuse(format!("-s is a path, not {}: give URLs to -u", shown(&url)));
    }
    // The transport of a URL is looked at when the URL is read.
    if args.url.is_none() && (args.transport == Transport::Tcp || args.socket.is_some()) {
        let of_rdma = [
            (args.rx_size.is_some(), "--rx-size sets the RDMA receive window"),
            (args.poll.is_some(), "--poll sets how RDMA completions are awaited"),
            (args.pool, "--pool registers memory for RDMA"),
        ];
        if let Some((_, what)) = of_rdma.into_iter().find(|(given, _)| *given) {
            return refuse(format!("{what}: it needs --rdma or --transport"));
        }
    }
    if args.pool && args.sizes.longest() < SHARED_FROM {
        return refuse(format!(
            "--pool is for values of {SHARED_FROM} bytes and more; -d gives at most {}",
            args.sizes.longest()
        ));
    }
    let transfers = match (&args.tests, &args.ratio) {
        (Some(tests), _) => tests.iter().all(DefaultTest::has_transfers),
        (_, Some(mix)) => mix.tests().all(DefaultTest::has_transfers),
        _ => true,
    };
    if args.direct && !transfers {
        return refuse("--direct is for the tests set and get: give -t set,get");
    }
    if args.user.is_some() && args.password.is_none() {
        return refuse("--user needs a password: give -a, or set VALKEY_RDMA_PASSWORD");
    }
    let threads = u64::from(args.threads).max(args.compare_with.as_ref().map_or(1, OtherSide::threads));
    let shared = args.is_shared();
    // The runtime's threads are counted with the process, which several load threads would each count as theirs.
    if args.runtime_threads > 1 && (threads > 1 || !shared) {
        return refuse(
            "--runtime-threads is for tasks on one thread's connections: leave out --threads (and threads of --compare-with), give --tasks-per-connection",
        );
    }
    if args.cluster && !shared {
        return refuse("--cluster goes through the client library: leave tasks=0 of --matrix out");
    }
    if args.keep_alive == 0 && shared {
        return refuse("-k 0 opens a connection for each request: tasks cannot share it");
    }
    let inline = match (&args.tests, &args.ratio) {
        (Some(tests), _) => DefaultTest::without_inline(tests).is_empty(),
        (_, Some(mix)) => mix.has_inline(),
        _ => false,
    };
    if shared && inline {
        return refuse(
            "the client library (--tasks-per-connection, tasks of --matrix) cannot send ping_inline: use ping_mbulk",
        );
    }
    Ok(())
}

fn refuse(reason: impl Into<String>) -> Result<(), Instead> {
    Err(Instead::Refuse(reason.into()))
}

/// The flag of an argument, as typed.
pub(super) fn flag(arg: &clap::Arg) -> String {
    match (arg.get_short(), arg.get_long()) {
        (Some(short), _) => format!("-{short}"),
        (None, Some(long)) => format!("--{long}"),
        (None, None) => "the command".to_owned(),
    }
}
