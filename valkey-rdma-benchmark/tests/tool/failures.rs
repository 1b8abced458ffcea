//! A run that cannot be made is reported in one line: with status 1 if the server fails, with status 2 if the flags are wrong.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tokio::net::TcpSocket;
use valkey_rdma_testkit::{Child, Folder, Signal, describe};

use crate::modes::mock;
use crate::scripted::{Keyspace, Script, Server, right, stderr, stdout, tool, tool_at};

fn assert_one_line(output: &std::process::Output, status: i32, said: &str) {
    let printed = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{printed}");
    assert!(printed.starts_with("error: ") && printed.contains(said), "{printed}");
    assert_eq!((printed.lines().count(), stdout(output)), (1, ""), "{printed}");
}

#[test]
fn bad_flags_end_with_status_2() {
    assert_one_line(&tool(&["-t", "nothing"]), 2, "unknown test \"nothing\"");
    assert_one_line(&tool(&["-c", "0"]), 2, "-c");
    assert_one_line(&tool(&["--url", "rdma://server", "--poll", "often"]), 2, "--poll");
    assert_one_line(&tool(&["--url", "valkey://server", "--poll", "busy"]), 2, "--poll");
    assert_one_line(&tool(&["--url", "unix:///s", "--poll", "busy"]), 2, "reached over unix");
    assert_one_line(&tool(&["--url", "unix:///s", "--rx-size", "65536"]), 2, "reached over unix");
    assert_one_line(&tool(&["--url", "valkey://server", "--pool", "-d", "8192"]), 2, "reached over tcp");
    assert_one_line(&tool(&["--rdma", "--pool", "-d", "1-8191"]), 2, "-d gives at most 8191");
    assert_one_line(&tool(&["--pool"]), 2, "it needs --rdma");
    assert_one_line(&tool(&["--json", "/nowhere/at/all.json"]), 2, "/nowhere/at/all.json cannot be written");
    assert_one_line(&tool(&["--json", "-"]), 2, "--json -: ");
    let one_file = env!("CARGO_TARGET_TMPDIR").to_owned() + "/one-file";
    assert_one_line(
        &tool(&["--json", &one_file, "--html", &(env!("CARGO_TARGET_TMPDIR").to_owned() + "/./one-file")]),
        2,
        "--json and --html would write the same file",
    );
    assert_one_line(&tool(&["--rps", "1e-20"]), 2, "0.001");
    assert_one_line(&tool(&["--plot", "a.png"]), 2, "must end in .svg");
    assert_one_line(&tool(&["--url", "ftp://server"]), 2, "unknown URL scheme \"ftp\"");
    assert_one_line(&tool(&["--url", "rdma://server?colour=red"]), 2, "unknown URL option \"colour\"");
    assert_one_line(&tool(&["--url", "valkey://server", "--rx-size", "65536"]), 2, "--rx-size");
    assert_one_line(&tool(&["--url", "rdma://server?rx_size=1073741824"]), 2, "from 65536 to 16777216");
    assert_one_line(&tool(&["--url", "rdma://server?rx_size=65536", "--rx-size", "65536"]), 2, "--rx-size");
}

#[test]
fn help_and_version_succeed() {
    let output = tool(&["--help"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert!(stdout(&output).contains("--demo") && !stdout(&output).contains('\x1b'));
    assert_eq!(tool(&["--version"]).status.code(), Some(0));
}

#[test]
fn nothing_listening_is_reported() {
    // Bound, so that the port stays free, and not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_one_line(&tool_at(socket.local_addr().unwrap(), ""), 1, "connection refused");
}

#[test]
fn nothing_listening_on_the_emulated_device_is_reported() {
    // As above.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("emulated://{}", socket.local_addr().unwrap());
    assert_one_line(&tool(&["--url", &url]), 1, "refused the connection (emulated)");
}

#[test]
fn a_server_other_than_valkey_is_reported_with_status_2() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    assert_one_line(&tool(&["-p", &port, "-c", "1"]), 2, "is it a Valkey server");
}

#[test]
fn running_out_of_files_is_reported_with_its_cause() {
    let server = Server::start(right);
    // Enough for the tool itself, not for 50 connections.
    let script = "ulimit -n 24; exec \"$0\" --url \"$1\"";
    let url = format!("valkey://{}", server.addr);
    let args = ["-c", script, env!("CARGO_BIN_EXE_valkey-rdma-benchmark"), &url];
    let output = Command::new("sh").args(args).output().unwrap();
    assert_one_line(&output, 1, "Too many open files");
    assert!(stderr(&output).contains("ulimit -n"), "{}", stderr(&output));
}

#[test]
fn an_error_at_a_later_point_of_the_matrix_keeps_the_results_before() {
    let server = Server::start(right);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("matrix-error");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let url = format!("valkey://{}", server.addr);
    let run = |matrix: &str| {
        // Enough files for one connection, not for 50.
        let script = "ulimit -n 24; cd \"$1\"; shift; exec \"$0\" \"$@\"";
        Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_valkey-rdma-benchmark")])
            .arg(&folder)
            .args(["-u", &url, "-t", "ping_mbulk", "-n", "10", "-q", "--matrix", matrix])
            .args(["--json", "out.json", "--html", "out.html", "--plot", "out.svg", "--hdr", "out"])
            .output()
            .unwrap()
    };
    let files = || std::fs::read_dir(&folder).unwrap().count();

    let nothing = run("c=50");
    assert_eq!((nothing.status.code(), files()), (Some(1), 0), "{}", stderr(&nothing));

    let output = run("c=1,50");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("Too many open files"), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&std::fs::read(folder.join("out.json")).unwrap()).unwrap();
    assert!(json.to_string().contains("\"connections\":1"), "{json}");
    assert!(
        ["out.html", "out.svg", "out.PING_MBULK.hgrm"].iter().all(|name| folder.join(name).exists()),
        "{}",
        files()
    );
}

fn no_set(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if command[0] == b"SET" { Some(b"-ERR no SET\r\n".to_vec()) } else { right(command, keys) }
}

#[test]
fn a_comparison_names_the_server_that_could_not_be_prepared() {
    let (one, other) = (Server::start(right), Server::start(no_set));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unprepared.json");
    let flags = format!(
        "-t get -n 10 -c 1 --populate all --compare valkey://{} --json {}",
        other.addr,
        file.display()
    );
    let output = tool_at(one.addr, &flags);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(json["tests"][0]["run"]["server"], format!("valkey://{}", other.addr), "{json:#}");
}

fn hangs_up(_: &[Vec<u8>], _: &Keyspace) -> Option<Vec<u8>> {
    None
}

#[test]
fn a_peer_that_closes_in_the_handshake_is_reported() {
    let server = Server::start(hangs_up);
    assert_one_line(&tool_at(server.addr, ""), 1, "handshake");
}

fn wants_a_password(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    match &command[0][..] {
        b"HELLO" | b"AUTH" => {
            Some(b"-WRONGPASS invalid username-password pair or user is disabled.\r\n".to_vec())
        }
        _ => right(command, keys),
    }
}

#[test]
fn a_wrong_password_is_reported_and_not_shown() {
    let server = Server::start(wants_a_password);
    let port = server.addr.port().to_string();
    let output = tool(&["--transport", "tcp", "-p", &port, "-a", "hunter2"]);
    assert_one_line(&output, 1, "check user and password");
    assert!(!stderr(&output).contains("hunter2"));
}

fn never_pongs(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if command.len() == 1 && command[0] == b"PING" { Some(Vec::new()) } else { right(command, keys) }
}

/// Starts the tool.
fn start(args: &[&str]) -> Child {
    Child::start(Command::new(env!("CARGO_BIN_EXE_valkey-rdma-benchmark")).args(args)).unwrap()
}

/// Longer than any wait here takes.
const DEADLINE: Duration = Duration::from_secs(300);

#[test]
fn an_interrupt_ends_connecting_over_tcp_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("valkey://{}?timeout=60m", listener.local_addr().unwrap());
    let mut run = start(&["--url", &url, "-t", "ping"]);
    let _silent = listener.accept().unwrap();
    run.signal(Signal::INT);
    let status = run.wait(DEADLINE).unwrap();
    assert_eq!((status.code(), run.stdout(), run.stderr()), (Some(130), String::new(), String::new()));
}

#[test]
fn an_interrupt_ends_the_wait_for_standard_input() {
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let folder = Folder::new(&format!("stdin-{number}"));
        let pipe = folder.file("pipe");
        mkfifo(pipe.as_str(), Mode::S_IRWXU).unwrap();
        // What a shell starts in the background ignores SIGINT: the tests, perhaps.
        let script = "exec env --default-signal=INT \"$0\" -x -n 1 -- set k <\"$1\"";
        let args = ["-c", script, env!("CARGO_BIN_EXE_valkey-rdma-benchmark"), &pipe];
        let mut run = Child::start(Command::new("sh").args(args)).unwrap();
        let mut input = File::options().write(true).open(&pipe).unwrap();
        // More than a pipe holds: the tool has begun to read, and waits for the end.
        input.write_all(&vec![b'v'; 1 << 20]).unwrap();
        run.signal(signal);
        let status = run.wait(DEADLINE).unwrap();
        assert_eq!(describe(status), format!("was killed by signal {number}"), "{}", run.stderr());
    }
}

#[test]
fn an_interrupt_ends_even_a_test_whose_server_hangs() {
    let server = Server::start(never_pongs);
    let url = format!("valkey://{}", server.addr);
    // RESP3, whose handshake has no PING.
    let mut run = start(&["--url", &url, "-3", "-t", "ping_mbulk", "--csv"]);
    // The head comes when all connections are open.
    run.lines("\"test\"", 1, DEADLINE).unwrap();
    run.signal(Signal::INT);
    let status = run.wait(DEADLINE).unwrap();
    assert_eq!(status.code(), Some(130), "{}", run.stderr());
    assert!(run.stderr().contains("interrupted"), "{}", run.stderr());
}

#[test]
fn reports_of_an_interrupted_run_say_so() {
    let (server, folder) = (Server::start(right), Folder::new("interrupted"));
    let (json, html) = (folder.file("out.json"), folder.file("out.html"));
    let url = format!("valkey://{}", server.addr);
    let mut run = start(&[
        "--url",
        &url,
        "-t",
        "ping_mbulk",
        "-c",
        "1",
        "--sweep",
        "--duration",
        "3600",
        "--json",
        &json,
        "--html",
        &html,
    ]);
    run.lines("requests ", 1, DEADLINE).unwrap();
    run.signal(Signal::INT);
    let status = run.wait(DEADLINE).unwrap();
    assert_eq!(status.code(), Some(130), "{}", run.stderr());
    assert!(run.stderr().contains("interrupted: not all rates were tried"), "{}", run.stderr());
    assert!(run.stdout().contains("interrupted before a good rate was found"), "{}", run.stdout());
    let report: Value = serde_json::from_str(&folder.read("out.json")).unwrap();
    assert_eq!(
        (&report["interrupted"], &report["sweeps"][0]["best_requests_per_second"]),
        (&Value::Bool(true), &Value::Null)
    );
    assert!(folder.read("out.html").contains("Interrupted: the last result is not complete"));
}

/// The tool waits for a lost server; without a word, it would seem to hang.
#[test]
fn a_run_without_a_connection_says_that_it_waits() {
    for flags in [&["-c", "2"][..], &["--live"], &["-c", "2", "--tasks-per-connection", "3"]] {
        let server = mock();
        let url = format!("valkey://{}", server.addr);
        let mut run = start(&[&["--url", &url, "-t", "ping_mbulk", "--duration", "3600"], flags].concat());
        // The head comes when all connections are open.
        run.lines("test ", 1, DEADLINE).unwrap();
        drop(server);
        let waits = run.line_with("connecting again for up to 60 s", DEADLINE).unwrap();
        assert!(waits.starts_with("PING_MBULK: ") && waits.contains("no connection for "), "{waits}");
        run.signal(Signal::INT);
        assert_eq!(run.wait(DEADLINE).unwrap().code(), Some(130), "{}", run.stderr());
    }
}

fn half_a_pong(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if command.len() == 1 && command[0] == b"PING" { Some(b"+PO".to_vec()) } else { right(command, keys) }
}

fn an_endless_pong(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if command.len() == 1 && command[0] == b"PING" {
        Some(b"$4611686018427387904\r\nabc".to_vec())
    } else {
        right(command, keys)
    }
}

#[test]
fn a_reply_that_never_arrives_ends_the_run_and_is_named() {
    for (script, partial) in [(never_pongs as Script, 0), (half_a_pong, 3 * 3)] {
        let server = Server::start(script);
        // RESP3, whose handshake has no PING.
        let output = tool_at(server.addr, "-3 -t ping_mbulk -n 100 -c 2 -P 3 -q --reply-timeout 0.2");
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("no reply 6") && printed.contains("not sent 94"), "{printed}");
        let detail = format!(
            "PING: no complete reply within 200ms (--reply-timeout): {partial} bytes of it arrived, 2 more"
        );
        assert!(printed.contains(&detail), "{printed}");
    }
}

#[test]
fn a_string_of_2_to_the_62_bytes_does_not_hang_the_run() {
    let server = Server::start(an_endless_pong);
    let output = tool_at(server.addr, "-3 -t ping_mbulk -n 100 -c 2 -q --reply-timeout 0.2");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn tasks_that_share_a_connection_do_not_wait_for_ever_either() {
    for pipeline in ["-P 1", "-P 3"] {
        let server = Server::start(never_pongs);
        let flags = format!(
            "-3 -t ping_mbulk -n 100 -c 2 --tasks-per-connection 2 {pipeline} -q --reply-timeout 0.2"
        );
        let output = tool_at(server.addr, &flags);
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(
            printed.contains("PING: no complete reply within 200ms") && printed.contains("not sent "),
            "{printed}"
        );
    }
}

#[test]
fn a_matrix_overrides_no_flag_and_skips_no_check() {
    assert_one_line(&tool(&["-c", "8", "--matrix", "c=1,50"]), 2, "so leave out -c");
    assert_one_line(&tool(&["-d", "8", "--matrix", "c=1 d=1,2"]), 2, "so leave out -d");
    assert_one_line(&tool(&["--rdma", "--pool", "--matrix", "d=16384,64"]), 2, "-d gives at most 64");
    assert_one_line(&tool(&["-k", "0", "--matrix", "tasks=0,2"]), 2, "tasks cannot share it");
}

/// Folders with the names of files that a run would write at its end.
#[test]
fn the_distribution_of_every_test_can_be_written_or_nothing_is_measured() {
    let folder = Folder::new("hdr-reserved");
    for (taken, flags) in [
        ("a.GET.hgrm", "-t set,get"),
        ("b.GET.service.hgrm", "-t set,get --rps 100"),
        ("c.SET-2.hgrm", "-t set --matrix c=1,2"),
        ("d.lpush_list_v.hgrm", "lpush list v"),
    ] {
        let hdr = folder.file(&taken[..1]);
        std::fs::create_dir_all(folder.file(taken)).unwrap();
        // Nothing listens there: a run that begins ends with status 1.
        let args: Vec<_> =
            ["-p", "1", "-n", "1", "--hdr", &hdr].into_iter().chain(flags.split(' ')).collect();
        assert_one_line(&tool(&args), 2, &format!("{taken} cannot be written"));
        let names = std::fs::read_dir(folder.file("")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(&taken[..1])).collect();
        assert_eq!(left, [taken], "empty files do not stay");
    }
}
