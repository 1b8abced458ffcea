//! Which command lines are accepted, and the errors of the others.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use crate::drive::Verify as VerifyReplies;
use crate::program::args::{Args, Instead, REFUSED, Transport};
use crate::workload::{DefaultTest, Sizes};
use valkey_rdma_client::{Polling, Protocol};
use valkey_rdma_transport::tls::Verify;

pub(super) fn parse(line: &str) -> Result<Args, Instead> {
    Args::from_command_line(std::iter::once("valkey-rdma-benchmark").chain(line.split_whitespace()))
}

pub(super) fn refusal(line: &str) -> String {
    match parse(line) {
        Err(Instead::Refuse(reason)) => reason,
        other => panic!("{line:?} was not refused: {other:?}"),
    }
}

fn titles(args: &Args) -> Vec<&'static str> {
    match args.tests.clone() {
        Some(tests) => tests.iter().map(|test| test.title).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_socket_excludes_host_and_port() {
    for server in ["-h server", "-p 7000"] {
        assert!(refusal(&format!("-s /tmp/s {server}")).contains(&server[..2]));
    }
}

#[test]
fn the_defaults_are_those_of_valkey_benchmark() {
    let args = parse("").unwrap();
    assert_eq!((args.host.as_str(), args.port, args.transport), ("127.0.0.1", 6379, Transport::Tcp));
    assert_eq!((args.clients, args.requests(), args.pipeline), (50, 100_000, 1));
    assert_eq!((args.sizes.clone(), args.threads, args.keep_alive), (Sizes::fixed(3), 1, 1));
    assert_eq!(
        (args.keyspace(), args.dbnum, args.resp3, args.quiet, args.csv),
        (None, 0, false, false, false)
    );
    assert_eq!((args.tests, args.tasks_per_connection, args.verify), (None, None, VerifyReplies::Length));
    assert_eq!(DefaultTest::all().len(), 24);
}

#[test]
fn flags_have_the_meaning_of_valkey_benchmark() {
    let line = "-h server -p 7000 -a secret --user app --dbnum 3 -3 -c 8 -n 5 -d 10 -P 16 -r 1000 \
                -t set -q --csv --seed 9 --threads 2 --rdma -k 0 --sequential --precision 1 --enable-tracking -l";
    let args = parse(line).unwrap();
    assert_eq!((args.host.as_str(), args.port, args.dbnum, args.resp3), ("server", 7000, 3, true));
    assert_eq!(
        (args.password.as_ref().map(|password| password.as_str()), args.user.as_deref()),
        (Some("secret"), Some("app"))
    );
    assert_eq!((args.clients, args.requests(), args.pipeline), (8, 5, 16));
    assert_eq!((args.keyspace().map(|keys| keys.get()), args.seed, args.threads), (Some(1000), Some(9), 2));
    assert_eq!((args.transport, args.keep_alive, args.precision), (Transport::Rdma, 0, 1));
    assert!(args.sequential && args.enable_tracking && args.forever);
    assert_eq!(titles(&args), ["SET"]);
    assert!(args.quiet && args.csv);
    assert!(!format!("{args:?}").contains("secret"));

    for (url, shown) in [
        ("rdma://app:secret@server:7000/3?timeout=2s", "\"rdma://app:***@server:7000/3\""),
        ("rdma+sentinel://server/m?sentinel_password=secret", "\"rdma+sentinel://server:26379/m\""),
        ("rdma+sentinel://server/m?sentinel_password=se@cret", "\"rdma+sentinel://***\""),
        ("valkey://:se@cret/@server", "\"valkey://***\""),
        ("secret@server", "\"***\""),
        ("rdma://server", "\"rdma://server:6379\""),
    ] {
        let args = parse(&format!("--url {url}")).unwrap();
        assert_eq!(format!("{:?}", args.url.as_ref().unwrap()), shown);
        assert!(format!("{args:?}").contains(shown), "{args:?}");
    }
}

#[test]
fn tests_run_once_each_and_in_the_fixed_order() {
    assert_eq!(
        titles(&parse("-t GET,ping_mbulk,set,get,ping").unwrap()),
        ["PING_INLINE", "PING_MBULK", "SET", "GET"]
    );
    let lrange = titles(&parse("-t lrange_300").unwrap());
    assert_eq!(lrange, ["LPUSH (needed to benchmark LRANGE)", "LRANGE_300 (first 300 elements)"]);
}

#[test]
fn what_follows_the_flags_is_a_command() {
    let args = parse("-r 10 -- multi ; set key:__rand_int__ -t ; exec").unwrap();
    assert_eq!(args.command.len(), 7);
    assert_eq!(parse("lpush list -c").unwrap().command.len(), 3);
}

#[test]
fn our_own_flags_are_read() {
    let line =
        "--url emulated://host:1234 --tasks-per-connection 50 --rx-size 65536 --verify full --fail-fast";
    let args = parse(line).unwrap();
    assert_eq!(args.url.as_ref().map(|url| url.as_str()), Some("emulated://host:1234"));
    assert_eq!((args.tasks_per_connection, args.rx_size), (Some(50), Some(65536)));
    assert!(args.fail_fast && args.verify == VerifyReplies::Full);
    assert_eq!(parse("--demo").unwrap().demo, Some(crate::program::args::DemoForm::Screen));
    assert_eq!(parse("--demo=tables").unwrap().demo, Some(crate::program::args::DemoForm::Tables));
    for line in [
        "--rps 100 --arrivals poisson",
        "--sweep --target-p99 1.5 --arrivals poisson",
        "--ratio 1:10 -d 64:10,1024-4096:1 -r 100 --key-dist zipf:0.99",
        "--compare valkey://other --rounds 4 -t get --plot a.svg --json b.json",
        "--matrix c=1,50",
        "--live --hdr lat --warmup 1 --duration 2",
        "-t mget --multi-key 100 -c 3",
    ] {
        let read = parse(line);
        assert!(read.is_ok(), "{line}: {read:?}");
    }
}

#[test]
fn bad_command_lines_are_refused_in_one_line_that_names_the_flag() {
    for (line, said) in [
        ("-t ping_inline --tasks-per-connection 2", "use ping_mbulk"),
        ("-t ping_inline --matrix tasks=1", "use ping_mbulk"),
        ("--ratio ping_inline:1,get:1 --tasks-per-connection 2", "use ping_mbulk"),
        ("-k 0 --matrix tasks=5", "tasks cannot share it"),
        ("--cluster --matrix tasks=0,5", "leave tasks=0 of --matrix out"),
        ("--tasks-per-connection 2 --runtime-threads 2 --threads 2", "leave out --threads"),
        ("--tasks-per-connection 2 --runtime-threads 2 --matrix threads=2", "leave out --threads"),
        (
            "--tasks-per-connection 2 --runtime-threads 2 --compare valkey://a --compare-with threads=2",
            "threads of --compare-with",
        ),
        ("-t nothing", "unknown test \"nothing\""),
        ("-t set,", "unknown test \"\""),
        ("--cluster -k 0", "cannot be used with '-k <BOOLEAN>'"),
        ("--cluster --enable-tracking", "cannot be used with '--enable-tracking'"),
        ("--cluster -t ping_inline", "use ping_mbulk"),
        ("--rfr yes", "primaries only"),
        ("--cacertdir /etc/ssl/certs", "give --cacert ca.pem"),
        ("--tls --cert a.crt", "--key <FILE>"),
        ("--tls --key a.key", "--cert <FILE>"),
        ("-s /tmp/s --tls", "cannot be used with '--tls'"),
        ("--mptcp", "mptcpize"),
        ("--fuzz", "use valkey-benchmark"),
        ("-e", "obsolete"),
        ("-n 5 --duration 5", "cannot be used with"),
        ("--sequential", "-r <KEYSPACE>"),
        ("-x", "COMMAND"),
        ("-t set get a", "cannot be used with"),
        ("--ratio 1:2 -t set", "cannot be used with"),
        ("--ratio 0:0", "not a valid mix"),
        ("--key-dist zipf", "-r <KEYSPACE>"),
        ("-r 5 --key-dist bell", "unknown key distribution"),
        ("--arrivals poisson", "<--rps <COMMANDS>|--sweep>"),
        ("--sweep --rps 5", "cannot be used with '--rps <COMMANDS>'"),
        ("--sweep -n 5", "cannot be used with '-n <REQUESTS>'"),
        ("--target-p99 1", "--sweep"),
        ("--rounds 5", "--compare"),
        ("--cells c1-3B", "--evidence"),
        ("--evidence a", "ends in .json"),
        ("--evidence a.json --cells c9", "unknown cell \"c9\""),
        ("--evidence a.json -c 3", "measures its own cells: leave out -c"),
        ("--evidence a.json -d 3", "measures its own cells: leave out -d"),
        ("--evidence a.json --json b", "leave out --json"),
        ("--evidence a.json --sweep", "cannot be used with '--sweep'"),
        ("--evidence a.json -s /tmp/s", "cannot be used with"),
        ("--evidence a.json --compare valkey://a --compare-with tasks=1", "leave out --compare-with"),
        ("--compare valkey://a --sweep", "cannot be used with '--sweep'"),
        ("--compare valkey://a --rps 5", "cannot be used with '--rps <COMMANDS>'"),
        ("--matrix c=1 -l", "cannot be used with '-l'"),
        ("--populate all get a", "cannot be used with"),
        ("--compare valkey://a --csv", "cannot be used with '--csv'"),
        ("-l --json a", "cannot be used with '--json <FILE>'"),
        ("-I -t set", "-I sends no requests"),
        ("--compare valkey://a --hdr lat", "cannot be used with '--hdr <FILE>'"),
        ("--sweep -q", "cannot be used with '-q'"),
        ("-q --percentiles 99", "cannot be used with '--percentiles <LIST>'"),
        ("-k 0 --tasks-per-connection 5", "tasks cannot share it"),
        ("-k 2", "-k <BOOLEAN>"),
        ("--matrix q=1", "unknown axis"),
        ("--reply-timeout=-1", "--reply-timeout <SECONDS>"),
        ("--populate some", "--populate <WHICH>"),
        ("--warmup 0", "--warmup <SECONDS>"),
        ("--rps fast", "--rps <COMMANDS>"),
        ("--precision 7", "--precision <DIGITS>"),
        ("--multi-key 0", "--multi-key <N>"),
        ("-c 0", "0 is not in 1..=10000"),
        ("-c 10001", "-c <CLIENTS>"),
        ("-n 0", "-n <REQUESTS>"),
        ("-n abc", "-n <REQUESTS>"),
        ("-d 0", "-d <SIZES>"),
        ("-d 536870913", "not a list of sizes"),
        ("-P 0", "-P <NUMREQ>"),
        ("-r 0", "-r <KEYSPACE>"),
        ("-r 1000000000001", "-r <KEYSPACE>"),
        ("-p 65536", "-p <PORT>"),
        ("-p 0", "-p <PORT>"),
        ("--tasks-per-connection 0", "--tasks-per-connection <N>"),
        ("--threads 513", "--threads <NUM>"),
        ("--rx-size 65535", "--rx-size <BYTES>"),
        ("--rx-size 16777217", "16777217 is not in 65536..=16777216"),
        ("--rx-size 4294967295", "4294967295 is not in 65536..=16777216"),
        ("--transport udp", "rdma, tcp, emulated"),
        ("--transport tcp --rx-size 65536", "it needs --rdma"),
        ("--user app", "--user needs a password: give -a"),
        ("--url rdma://server -h server", "cannot be used with '-h <HOST>'"),
        ("--url rdma://server -p 1", "cannot be used with '-p <PORT>'"),
        ("--url rdma://server --transport tcp", "cannot be used with '--transport <KIND>'"),
        ("--url rdma://server -a secret", "cannot be used with '-a <PASSWORD>'"),
        ("-s rdma://app:secret@server", "-s is a path, not rdma://***: give URLs to -u"),
        ("--demo -n 10", "--demo"),
        ("--no-such-flag", "--no-such-flag"),
        ("-c", "-c <CLIENTS>"),
    ] {
        let reason = refusal(line);
        assert!(reason.contains(said), "{line:?} was refused with {reason:?}");
        assert_eq!(reason.lines().count(), 1, "{line:?} was refused with {reason:?}");
    }
}

#[test]
fn the_help_and_the_readme_have_the_name_of_every_test() {
    let Err(Instead::Print(help)) = parse("--help") else { panic!("--help prints") };
    let readme = include_str!("../../../README.md");
    for name in DefaultTest::all().iter().flat_map(|test| test.names) {
        assert!(help.split_whitespace().any(|word| word == *name), "{name} in {help}");
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn the_readmes_table_has_every_flag_and_no_other() {
    let Err(Instead::Print(help)) = parse("--help") else { panic!("--help prints") };
    let mut flags: Vec<String> = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-'))
        .flat_map(|line| line.split_whitespace().take_while(|word| word.starts_with('-')))
        // An optional value, as in `--demo[=<FORM>]`, is not part of the flag.
        .filter_map(|flag| flag.trim_end_matches(',').split('[').next().map(str::to_owned))
        .collect();
    // Refused flags are in the table too, with the reason.
    let refused = REFUSED.iter().map(|(flag, _)| format!("--{flag}"));
    flags.extend(refused.chain(["-e".to_owned()]));
    let readme = include_str!("../../../README.md");
    let rows = readme.lines().filter(|line| line.starts_with("| `-"));
    let mut printed: Vec<String> = rows
        .filter_map(|row| row.split(" | ").next())
        .flat_map(|cell| cell.split([' ', '`', ',']))
        .filter(|word| word.starts_with('-'))
        .map(str::to_owned)
        .collect();
    flags.sort_unstable();
    printed.sort_unstable();
    assert_eq!(printed, flags);
}

#[test]
fn the_other_server_of_a_comparison_is_asked_the_same_way() {
    let others = |line: &str| parse(line).unwrap().other_target();
    let other = others("-h a -a secret --dbnum 3 --compare valkey://a").unwrap().unwrap().endpoint;
    assert_eq!((other.protocol(), other.database()), (Protocol::Resp2, 3));
    assert_eq!(other.password(), Some("secret"));
    let other = others("-u valkey://:secret@a/2 -3 --compare emulated://b").unwrap().unwrap().endpoint;
    assert_eq!((other.protocol(), other.database()), (Protocol::Resp3, 2));
    assert_eq!(other.password(), None, "another host does not get it");
    let line = "-u emulated://a --rx-size 65536 --poll busy --compare emulated://b";
    let other = others(line).unwrap().unwrap().endpoint;
    assert_eq!((other.rx_size(), other.polling()), (Some(65536), Polling::Busy));
    for line in ["-h a --compare valkey://a?protocol=resp3", "-h a --compare valkey://a/1"] {
        assert!(
            matches!(others(line), Err(Instead::Refuse(text)) if text.contains("same protocol")),
            "{line}"
        );
    }
}

#[test]
fn a_url_that_leaves_open_what_is_measured_is_refused() {
    for (line, said) in [
        ("-u rdma://a?fallback=tcp", "measure valkey:// apart"),
        ("-u rdma://a?fallback=tcp --tasks-per-connection 5", "measure valkey:// apart"),
        ("-u rdma+sentinel://a/primary", "the URL of the server"),
        ("-u rdma+cluster://a,b", "without +cluster, and --cluster"),
        ("-u rdma+cluster://a --cluster", "without +cluster, and --cluster"),
        ("-u rdma://a?rdma_port=%2B1", "rdma_port is for --cluster"),
    ] {
        let refused = parse(line).unwrap().target();
        assert!(matches!(&refused, Err(Instead::Refuse(text)) if text.contains(said)), "{line}: {refused:?}");
    }
    assert!(parse("-u rdma://a?rdma_port=%2B1 --cluster").unwrap().target().is_ok());
    let other = parse("-u rdma://a --compare rdma://a?fallback=tcp").unwrap().other_target();
    assert!(matches!(&other, Err(Instead::Refuse(text)) if text.starts_with("--compare: ")), "{other:?}");
}

/// Removes the folder of a [`pair`].
fn remove(file: &str) {
    let _ = std::fs::remove_dir_all(std::path::Path::new(file).parent().unwrap());
}

/// Files with a certificate and its key, for a test of this name.
fn pair(name: &str) -> [String; 2] {
    let folder = std::env::temp_dir().join(format!("valkey-rdma-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let made = rcgen::generate_simple_self_signed(["store".to_owned()]).unwrap();
    [("crt", made.cert.pem()), ("key", made.signing_key.serialize_pem())].map(|(end, text)| {
        let file = folder.join(end);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    })
}

#[test]
fn flags_for_tls_mean_what_the_options_of_a_url_mean() {
    let [ca, key] = &pair("tls-flags");
    let cert = ca;
    let endpoint = |line: String| parse(&line).unwrap().target().unwrap().endpoint;
    for (flags, url) in [
        (format!("-h store --tls --cacert {ca}"), format!("valkeys://store?ca={ca}")),
        (format!("-h store --rdma --tls --cacert {ca}"), format!("rdmas://store?ca={ca}")),
        (
            "-h store --transport emulated --tls --insecure".to_owned(),
            "emulateds://store?verify=none".to_owned(),
        ),
        (
            format!("-h 10.0.0.7 --tls --sni store --cacert {ca} --cert {cert} --key {key}"),
            format!("rediss://10.0.0.7?server_name=store&ca={ca}&cert={cert}&key={key}"),
        ),
        (format!("-u valkeys://store --tls --cacert {ca}"), format!("valkeys://store?ca={ca}")),
        (format!("-u rdmas://store?ca={ca} --sni other"), format!("rdmas://store?ca={ca}&server_name=other")),
    ] {
        assert_eq!(endpoint(flags.clone()), endpoint(format!("-u {url}")), "{flags}");
    }
    let ciphers = "--tls-ciphers ECDHE-RSA-AES128-GCM-SHA256 --tls-ciphersuites TLS_AES_128_GCM_SHA256";
    let limited = endpoint(format!("-u valkeys://store?ca={ca} {ciphers}"));
    assert_ne!(limited, endpoint(format!("-u valkeys://store?ca={ca}")));
    remove(ca);
}

#[test]
fn tls_that_contradicts_itself_or_cannot_be_used_is_refused() {
    for (line, said) in [
        ("-u valkey://a --tls", "the URL's valkey:// has none: write valkeys://"),
        ("-u redis://a --cacert b", "--cacert is for TLS, and the URL's redis:// has none: write rediss://"),
        ("--sni a", "--sni is for TLS: give --tls too"),
        ("--rdma --insecure", "--insecure is for TLS: give --tls too"),
        ("-u valkeys://a?ca=b --cacert c", "--cacert contradicts the URL's ca"),
        ("-u valkeys://a?verify=full --insecure", "--insecure contradicts the URL's verify"),
        ("--tls --insecure --cacert /nowhere/ca.crt", "cannot read the file of issuers /nowhere/ca.crt"),
        ("-u valkeys://a?ca=/nowhere/ca.crt", "cannot read the file of issuers /nowhere/ca.crt"),
        ("--tls --insecure --tls-ciphers HIGH", "unknown cipher suite \"HIGH\""),
        (
            "--tls --insecure --sni a/b",
            "\"a/b\" cannot be the name in a certificate: give the server's with --sni NAME",
        ),
        ("-u valkeys://a?verify=none&server_name=a/b", "give the server's with server_name=NAME"),
        ("--rdma --tls --insecure --pool -d 65536", "leave --pool out"),
    ] {
        let refused = parse(line).unwrap().target();
        assert!(matches!(&refused, Err(Instead::Refuse(text)) if text.contains(said)), "{line}: {refused:?}");
    }
}

#[test]
fn the_other_server_of_a_comparison_has_the_settings_of_tls_at_the_same_host_only() {
    let other = |line: &str| parse(line).unwrap().other_target().unwrap().unwrap().endpoint;
    let verify = |line: &str| other(line).tls().map(|tls| tls.verify());
    assert_eq!(verify("-h a --tls --insecure --compare emulateds://a"), Some(Verify::None));
    assert_eq!(verify("-h a --tls --insecure --compare valkey://a"), None);
    let [ca, _] = pair("tls-compared");
    let line = format!("-h a --tls --insecure --compare valkeys://b?ca={ca}");
    assert_eq!(verify(&line), Some(Verify::Full));
    let line = format!("-h a --tls --insecure --compare valkeys://a?ca={ca}");
    assert_eq!(verify(&line), Some(Verify::Full), "its URL says how");
    remove(&ca);
}

#[test]
fn a_url_means_resp2_as_flags_do() {
    let protocol = |line: &str| parse(line).unwrap().target().map(|target| target.endpoint.protocol());
    assert_eq!(protocol("-u valkey://a"), Ok(Protocol::Resp2));
    assert_eq!(protocol("-u valkey://a -3"), Ok(Protocol::Resp3));
    assert_eq!(protocol("-u valkey://a?protocol=resp3"), Ok(Protocol::Resp3));
    assert!(protocol("-u valkey://a?protocol=resp2 -3").is_err());
}

#[test]
fn help_and_version_are_printed_and_h_is_the_host() {
    let Err(Instead::Print(help)) = parse("--help") else { panic!("--help prints") };
    assert!(help.contains("--tasks-per-connection"), "{help}");
    assert!(
        matches!(parse("--version"), Err(Instead::Print(text)) if text.starts_with("valkey-rdma-benchmark "))
    );
    assert!(matches!(parse("-h --help"), Err(Instead::Refuse(_))));
}
