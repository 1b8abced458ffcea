//! Flags that contradict each other.

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::{Args, Instead, Selection, Transport};
use crate::workload::{DefaultTest, SHARED_FROM};

/// The flags of modes that run no tests: all others are refused, so that a new flag does not pass here without effect.
const IDLE: &[&str] = &[
    "idle",
    "url",
    "host",
    "port",
    "socket",
    "password",
    "user",
    "dbnum",
    "rdma",
    "transport",
    "rx_size",
    "poll",
    "resp3",
    "cluster",
    "enable_tracking",
    "clients",
    "tasks_per_connection",
    "threads",
];
const SERVE_ECHO: &[&str] = &["serve_echo", "rdma", "transport", "rx_size", "poll"];
const STREAM: &[&str] = &[
    "tests",
    "url",
    "host",
    "port",
    "rdma",
    "transport",
    "rx_size",
    "poll",
    "clients",
    "sizes",
    "requests",
    "duration",
    "reply_timeout",
];

/// Refuses what makes no sense together.
pub(super) fn check(args: &Args, matches: &ArgMatches) -> Result<(), Instead> {
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let modes = [
        ("--compare", args.compare.is_some()),
        ("--sweep", args.sweep),
        ("--matrix", args.matrix.is_some()),
        ("-I", args.idle),
        ("-l", args.forever),
        ("--serve-echo", args.serve_echo.is_some()),
    ];
    let mut chosen = modes.iter().filter(|mode| mode.1).map(|mode| mode.0);
    let mode = chosen.next();
    if let (Some(one), Some(other)) = (mode, chosen.next()) {
        return refuse(format!("{one} and {other} cannot be combined: choose one"));
    }
    let stream = matches!(args.tests, Some(Selection::Stream | Selection::Echo));
    let of_mode = match mode {
        Some("--serve-echo") => Some(("--serve-echo only listens", SERVE_ECHO)),
        Some("-I") => Some(("-I sends no requests", IDLE)),
        _ if stream => Some(("-t stream and echo send no commands", STREAM)),
        _ => None,
    };
    if let Some((why, flags)) = of_mode {
        let all = matches.ids().map(clap::Id::as_str).filter(|id| given(id));
        if let Some(flag) = all.into_iter().find(|id| !flags.contains(id)) {
            return refuse(format!("{why}: leave out {}", flag_of(flag)));
        }
    }
    if let Some(matrix) = &args.matrix {
        if let Some(axis) = matrix.axes().find(|axis| given(axis.id())) {
            return refuse(format!(
                "--matrix sets {} at every point, so leave out {}",
                axis.name(),
                flag_of(axis.id())
            ));
        }
        return matrix.combinations().iter().try_for_each(|point| check_run(&args.at(point), &given, mode));
    }
    check_run(args, &given, mode)
}

/// Refuses what makes no sense in one run: that of the flags, or of one point of `--matrix`.
fn check_run(args: &Args, given: &dyn Fn(&str) -> bool, mode: Option<&str>) -> Result<(), Instead> {
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
    if args.user.is_some() && args.password.is_none() {
        return refuse("--user needs a password: give -a, or set VALKEY_RDMA_PASSWORD");
    }
    if args.csv && given("percentiles") {
        return refuse("--csv prints valkey-benchmark's percentiles: leave out --percentiles");
    }
    if args.quiet && given("percentiles") {
        return refuse("-q prints p50 alone, as valkey-benchmark does: leave out -q or --percentiles");
    }
    if given("key_prefix") && !args.command.is_empty() {
        return refuse("--key-prefix is for the tests: write the names of keys into your command");
    }
    if given("arrivals") && args.rps == 0.0 && !args.sweep {
        return refuse("--arrivals needs --rps or --sweep");
    }
    if args.sweep && args.rps > 0.0 {
        return refuse("--sweep finds the rate: leave out --rps");
    }
    if args.sweep && args.requests.is_some() {
        return refuse("--sweep runs for a time at each rate: use --duration instead of -n");
    }
    if args.compare.is_some() && args.rps > 0.0 {
        return refuse("--compare measures the highest rate of two servers: leave out --rps");
    }
    if let Some(mode @ ("--compare" | "--sweep")) = mode
        && let Some(flag) = ["hdr", "quiet", "precision", "percentiles"].into_iter().find(|id| given(id))
    {
        return refuse(format!("{mode} has its own output: leave out {}", flag_of(flag)));
    }
    if args.csv && (args.compare.is_some() || args.sweep) {
        return refuse("--compare and --sweep print no CSV: use --json");
    }
    if args.forever && [&args.json, &args.hdr, &args.plot, &args.html].iter().any(|file| file.is_some()) {
        return refuse(
            "-l repeats the tests until interrupted and writes no files: leave out -l, or --json, --hdr, --plot and --html",
        );
    }
    if args.cluster {
        let pointless = ["keep_alive", "enable_tracking", "socket", "compare", "pool"];
        if let Some(flag) = pointless.into_iter().find(|id| given(id)) {
            return refuse(format!("--cluster has a connection to each node: leave out {}", flag_of(flag)));
        }
    }
    let shared = args.tasks_per_connection.is_some();
    if args.keep_alive == 0 && shared {
        return refuse("-k 0 opens a connection for each request: tasks cannot share it");
    }
    let inline = match (&args.tests, &args.ratio) {
        (Some(Selection::Tests(tests)), _) => DefaultTest::without_inline(tests).is_empty(),
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
fn flag_of(id: &str) -> String {
    match id {
        "tests" => "-t".to_owned(),
        "command" => "a command".to_owned(),
        "requests" => "-n".to_owned(),
        "quiet" => "-q".to_owned(),
        "pipeline" => "-P".to_owned(),
        "clients" => "-c".to_owned(),
        "host" => "-h".to_owned(),
        "port" => "-p".to_owned(),
        "sizes" => "-d".to_owned(),
        "keyspace" => "-r".to_owned(),
        "keep_alive" => "-k".to_owned(),
        "socket" => "-s".to_owned(),
        "forever" => "-l".to_owned(),
        "resp3" => "-3".to_owned(),
        "idle" => "-I".to_owned(),
        "stdin" => "-x".to_owned(),
        "password" => "-a".to_owned(),
        long => format!("--{}", long.replace('_', "-")),
    }
}
