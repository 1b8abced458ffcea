//! Which flags go together.

use super::arguments::{parse, refusal};
use crate::program::args::Instead;

/// Each flag, with a value.
const FLAGS: [&str; 73] = [
    "-h server",
    "-p 7000",
    "-s /tmp/socket",
    "-a secret",
    "--user app -a secret",
    "-u emulated://server",
    "--rdma",
    "--transport emulated",
    "--tls",
    "--sni server --tls",
    "--cacert ca.crt --tls",
    "--insecure --tls",
    "--cert a.crt --key a.key --tls",
    "--key a.key --cert a.crt --tls",
    "--tls-ciphers ECDHE-RSA-AES128-GCM-SHA256 --tls",
    "--tls-ciphersuites TLS_AES_128_GCM_SHA256 --tls",
    "--rx-size 65536 --rdma",
    "--poll busy --rdma",
    "--pool --rdma -d 65536",
    "--direct --rdma",
    "--direct-prefix LOB --direct --rdma",
    "-c 2",
    "--tasks-per-connection 2",
    "--cluster",
    "-n 5",
    "--duration 1",
    "--warmup 1",
    "-d 10",
    "--dbnum 1",
    "-3",
    "--threads 2",
    "--runtime-threads 2 --tasks-per-connection 2",
    "--enable-tracking",
    "-k 0",
    "-r 100",
    "--sequential -r 100",
    "--key-dist zipf:1 -r 100",
    "-P 2",
    "-q",
    "--percentiles 50",
    "--precision 2",
    "--csv",
    "-l",
    "-t ping",
    "-I",
    "-x ping",
    "--rps 5",
    "--arrivals poisson --rps 5",
    "--key-prefix a",
    "--seed 3",
    "--num-functions 3",
    "--num-keys-in-fcall 3",
    "--ratio 1:1",
    "--multi-key 3",
    "--verify full",
    "--populate all",
    "--reply-timeout 3",
    "--fail-fast",
    "--sweep",
    "--target-p99 3 --sweep",
    "--compare valkey://other",
    "--rounds 3 --compare valkey://other",
    "--compare-with tasks=2 --compare valkey://other",
    "--evidence a.json",
    "--cells c1-3B --evidence a.json",
    "--with-addresses --evidence a.json",
    "--matrix c=1",
    "--json a",
    "--hdr a",
    "--plot a.svg",
    "--html a",
    "--live",
    "-- ping",
];

/// Those that choose the server, and how it is reached.
const OF_A_SERVER: [&str; 6] =
    ["-h server", "-p 7000", "-u emulated://server", "--rdma", "--transport emulated", "-c 2"];
const OF_RDMA: [&str; 2] = ["--rx-size 65536 --rdma", "--poll busy --rdma"];
const OF_TLS: [&str; 8] = [
    "--tls",
    "--sni server --tls",
    "--cacert ca.crt --tls",
    "--insecure --tls",
    "--cert a.crt --key a.key --tls",
    "--key a.key --cert a.crt --tls",
    "--tls-ciphers ECDHE-RSA-AES128-GCM-SHA256 --tls",
    "--tls-ciphersuites TLS_AES_128_GCM_SHA256 --tls",
];

#[test]
fn every_flag_without_effect_in_a_mode_is_refused() {
    let help = match parse("--help") {
        Err(Instead::Print(help)) => help,
        other => panic!("{other:?}"),
    };
    // FLAGS has a command too. The help has --demo, --help and --version, which take no other flag.
    let count = help.lines().filter(|line| line.trim_start().starts_with('-')).count();
    assert_eq!(count - 3, FLAGS.len() - 1, "FLAGS has every flag");
    let more = ["-s /tmp/socket", "-a secret", "--user app -a secret", "--dbnum 1", "-3", "--cluster"];
    let of_idle = [
        "-I",
        "--enable-tracking",
        "--tasks-per-connection 2",
        "--threads 2",
        "--runtime-threads 2 --tasks-per-connection 2",
    ];
    let of_idle = [&OF_A_SERVER[..], &OF_RDMA, &OF_TLS, &more, &of_idle].concat();
    // Each of a comparison and of a sweep has outputs of its own.
    let of_tests =
        ["-q", "--percentiles 50", "--precision 2", "--csv", "--hdr a", "-l", "-I", "--matrix c=1"];
    let scheduled = ["--rps 5", "--arrivals poisson --rps 5"];
    let of_sweep = [
        "-n 5",
        "--compare valkey://other",
        "--rounds 3 --compare valkey://other",
        "--compare-with tasks=2 --compare valkey://other",
    ];
    let of_compare = ["--cluster", "--sweep", "--target-p99 3 --sweep"];
    let evidence =
        ["--evidence a.json", "--cells c1-3B --evidence a.json", "--with-addresses --evidence a.json"];
    let of_evidence = [
        "-a secret",
        "--user app -a secret",
        "--dbnum 1",
        "-3",
        "--duration 1",
        "--reply-timeout 3",
        "--compare valkey://other",
        "--rounds 3 --compare valkey://other",
    ];
    let of_evidence = [&OF_A_SERVER[..5], &OF_RDMA, &OF_TLS, &of_evidence, &evidence].concat();
    let all_but = |refused: &[&[&str]]| -> Vec<&'static str> {
        FLAGS.into_iter().filter(|flag| !refused.concat().contains(flag)).collect()
    };
    let of_sweep = all_but(&[&of_tests, &scheduled, &of_sweep, &evidence]);
    let of_compare = all_but(&[&of_tests, &scheduled, &of_compare]);
    for (mode, accepted) in [
        ("-I", of_idle),
        ("--sweep", of_sweep),
        ("--compare valkey://a", of_compare),
        ("--evidence b.json", of_evidence),
    ] {
        for flag in FLAGS {
            // A flag that is its own mode, or has it.
            let name = mode.split(' ').next().unwrap_or(mode);
            let line = if flag.contains(name) { flag.to_owned() } else { format!("{mode} {flag}") };
            let is_accepted = flag == mode || accepted.contains(&flag);
            match parse(&line) {
                Ok(_) => assert!(is_accepted, "{line} is accepted, and {flag} has no effect"),
                Err(Instead::Refuse(reason)) => assert!(!is_accepted, "{line}: {reason}"),
                Err(other) => panic!("{line}: {other:?}"),
            }
        }
    }
}

/// Flags that exclude what is required must not make up for it, as they do for clap alone.
#[test]
fn a_flag_that_requires_another_is_refused_beside_every_flag_that_does_not_give_it() {
    let mut requiring = 0;
    for flags in FLAGS {
        // With its value, and without what it requires.
        let flag = flags.split(" -").next().unwrap_or(flags);
        let Err(Instead::Refuse(reason)) = parse(flag) else { continue };
        let Some(missing) = reason.strip_prefix("the following required arguments were not provided: ")
        else {
            continue;
        };
        requiring += 1;
        let missing: Vec<&str> = missing.split([' ', '<', '>', '|', ';']).collect();
        for other in FLAGS {
            let gives = other.split(' ').any(|word| word.starts_with('-') && missing.contains(&word));
            let line = format!("{flag} {other}");
            assert!(gives || parse(&line).is_err(), "{line} is accepted, and {flag} has no effect");
        }
    }
    assert!(requiring >= 10, "{requiring}");
    for (line, missing) in [
        ("-x -t set", "COMMAND"),
        ("--sweep --compare-with P=2", "--compare <URL>"),
        ("--compare valkey://a --target-p99 1", "--sweep"),
        ("-l --target-p99 3", "--sweep"),
        ("--sweep --with-addresses", "--evidence <FILE.json>"),
    ] {
        let reason = refusal(line);
        assert!(reason.starts_with("the following required") && reason.contains(missing), "{line}: {reason}");
    }
}

#[test]
fn flags_of_some_tests_are_refused_where_none_of_these_runs() {
    for (line, said) in [
        ("-t set --multi-key 3", "--multi-key is for mset and mget, and no such test runs"),
        ("-t set --num-functions 3", "--num-functions is for function_load,"),
        ("-t get --num-keys-in-fcall 3", "--num-keys-in-fcall is for fcall,"),
        ("--ratio 1:1 --multi-key 3", "--multi-key is for"),
        ("--direct --rdma --multi-key 3", "--multi-key is for"),
    ] {
        let reason = refusal(line);
        assert!(reason.contains(said), "{line}: {reason}");
    }
    for line in [
        "-t set,mget,lpush --multi-key 3",
        "-t function_load,fcall --num-functions 3 --num-keys-in-fcall 3",
        "--ratio mset:1,get:2 --multi-key 3",
        "--multi-key 3 --num-functions 3 --num-keys-in-fcall 3",
    ] {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
    }
}
