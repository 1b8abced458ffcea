//! Bad input is one line on standard error and an exit status, and nothing on standard output.

use std::net::TcpListener;

use crate::run;

fn refused(status: i32, args: &[&str], parts: &[&str]) {
    let (code, out, err) = run(args);
    assert_eq!((code, out.as_str()), (Some(status), ""), "{args:?}: {err}");
    assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
    assert!(err.starts_with("error: "), "{args:?}: {err}");
    for part in parts {
        assert!(err.contains(part), "{args:?}: {part:?} is not in {err}");
    }
}

#[test]
fn a_wrong_command_line_is_refused() {
    for (args, parts) in [
        (&["chek"][..], &["chek", "see --help"][..]),
        (&["check"], &["ADDR:PORT"]),
        (&["check", "nowhere"], &["\"nowhere\" is not ADDRESS:PORT"]),
        (&["listen", "nowhere"], &["\"nowhere\" is not ADDRESS:PORT"]),
        (&["listen", "rdma://u:secret@h:1"], &["rdma://*** is not ADDRESS:PORT", "is for --url"]),
        (&["check", "h:1", "--queue-pairs", "0"], &["--queue-pairs", "1..=1024"]),
        (&["check", "h:1", "--queue-pairs", "100000"], &["--queue-pairs", "100000", "1..=1024"]),
        (&["check", "h:1", "--sizes", "0"], &["--sizes", "1 to 1G"]),
        (&["check", "h:1", "--sizes", "1,2G"], &["--sizes", "2G"]),
        (&["check", "h:1", "--time", "0s"], &["--time", "ms"]),
        (&["check", "h:1", "--operations", "atomics"], &["use send, write-imm, write, read"]),
        (&["check", "h:1", "--polling", "adaptive"], &["use event, busy"]),
        (&["check", "h:1", "--plot", "a.png"], &[".svg"]),
        (&["check", "h:1", "--plot", "/nonexistent/a.svg"], &["cannot be written"]),
        (&["--connections", "0"], &["--connections"]),
        (&["--connections", "5", "--url", "rdma://h"], &["--connections", "--url"]),
        (&["--connections", "5", "--mesh", "127.0.0.1:1,127.0.0.1:2"], &["--connections", "--mesh"]),
        (&["--device", "emulated"], &["--mesh"]),
        (&["--gid", "1"], &["--mesh"]),
        (&["listen", "127.0.0.1:0", "--gid", "1"], &["--gid"]),
        (&["--mesh", "127.0.0.1:1,127.0.0.1:2", "--wait", "2h"], &["--wait", "1ms to 1h"]),
        (&["--url", "http://h"], &["http", "rdma"]),
        (&["--url", "rdma+cluster://h,i"], &["one server"]),
        (&["--url", "valkey+sentinel://h/service"], &["one server"]),
        (&["--url", "rdma://u:secret@h:1/?x=1"], &["--url"]),
        (&["--mesh", "127.0.0.1:1"], &["at least two"]),
        (&["--mesh", "127.0.0.1:1,nowhere"], &["\"nowhere\" is not ADDRESS:PORT"]),
        (&["--mesh", "127.0.0.1:1,127.0.0.1:1"], &["127.0.0.1:1 is in the list twice"]),
        (&["--mesh", "127.0.0.1:1,127.0.0.1:2", "--host", "h"], &["--host"]),
    ] {
        refused(2, args, parts);
    }
}

#[test]
fn a_password_is_not_repeated() {
    let (.., err) = run(&["--url", "rdma://u:secret@h:1/?x=1"]);
    assert!(!err.contains("secret"), "{err}");
    for command in ["check", "listen"] {
        let (.., err) = run(&[command, "rdma://u:secret@h:1"]);
        assert!(!err.contains("secret") && err.contains("is for --url"), "{err}");
    }
}

#[test]
fn what_cannot_be_done_is_one_line_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    // A closed port.
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let emulated = ["--device", "emulated"];
    for (args, parts) in [
        (vec!["listen", &taken], vec![taken.as_str(), "in use", "another port"]),
        (vec!["listen", "203.0.113.1:1"], vec!["203.0.113.1:1", "address of this machine"]),
        (vec!["listen", "[fe80::1]:1"], vec!["add the interface that leads to it"]),
        (vec!["check", "[fe80::1%nosuch0]:1"], vec!["no network interface `nosuch0`"]),
        (vec!["check", &closed], vec![&closed, "refused", "listen"]),
        (vec!["check", "nowhere.invalid:1"], vec!["nowhere.invalid"]),
        (
            vec!["--mesh", "203.0.113.1:1,203.0.113.2:1"],
            vec!["none of 203.0.113.1:1, 203.0.113.2:1 is an address of this machine"],
        ),
    ] {
        refused(1, &[&args[..], &emulated].concat(), &parts);
    }
    let plot = format!("{}/none.svg", env!("CARGO_TARGET_TMPDIR"));
    refused(1, &["check", &closed, "--device", "emulated", "--plot", &plot], &["refused"]);
    assert!(!std::path::Path::new(&plot).exists(), "nothing is left behind");
    refused(1, &["listen", "127.0.0.1:0", "--device", "no-such-device"], &["127.0.0.1"]);
    refused(1, &["listen", "127.0.0.1:0"], &["127.0.0.1"]);
}

#[test]
fn ends_with_different_devices_or_choices_of_a_real_one_are_refused() {
    let (_listener, addr) = crate::listen(&[]);
    refused(1, &["check", &addr], &["it checks over `emulated` and you over `verbs`"]);
    refused(1, &["check", &addr, "--device", "emulated", "--gid", "1"], &["no choice of gid"]);
}

#[test]
fn the_plot_of_every_peer_can_be_written_or_nothing_is_measured() {
    let folder = format!("{}/plots", env!("CARGO_TARGET_TMPDIR"));
    let second = format!("{folder}/all.1.svg");
    std::fs::create_dir_all(&second).unwrap();
    let plot = format!("{folder}/all.svg");
    let args = ["check", "127.0.0.1:1", "127.0.0.1:2", "--device", "emulated", "--plot", &plot];
    refused(2, &args, &["all.1.svg", "cannot be written"]);
    assert!(!std::path::Path::new(&plot).exists(), "nothing is left behind");
    // One peer has one plot.
    refused(1, &args[..2].iter().chain(&args[3..]).copied().collect::<Vec<_>>(), &["refused"]);
}
