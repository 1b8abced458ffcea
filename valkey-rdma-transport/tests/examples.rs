//! Every example prints what `examples/README.md` says: both sides in one process, and one process for each. On the emulated
//! device, or on the one that `VALKEY_RDMA_TEST_DEVICE` names, at `VALKEY_RDMA_TEST_ADDR`.

#![cfg(feature = "emulated")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use valkey_rdma_testkit::ReservedPort;

const GUIDE: &str = include_str!("../examples/README.md");

/// An example as the guide has it.
struct Example {
    name: &'static str,
    /// What is printed by the side that listens, and the side that connects; or by one process for all.
    listen: Vec<&'static str>,
    connect: Vec<&'static str>,
    alone: Vec<&'static str>,
}

/// The sections `## N. NAME`, with their blocks "text listen", "text connect" and "text alone".
fn examples() -> Vec<Example> {
    let sections = GUIDE.split("\n## ").filter_map(|section| {
        let (title, text) = section.split_once('\n')?;
        let (_, name) = title.split_once(". ")?;
        let block = |kind: &str| {
            let (_, block) = text.split_once(&format!("```text {kind}\n")).unwrap_or_default();
            block.split("```").next().unwrap_or_default().lines().collect::<Vec<_>>()
        };
        Some(Example { name, listen: block("listen"), connect: block("connect"), alone: block("alone") })
    });
    sections.collect()
}

fn program(name: &str) -> Command {
    let test = std::env::current_exe().expect("a test has a path");
    let path = test.parent().expect("a folder").join("../examples").join(name);
    assert!(path.exists(), "{} is missing: cargo build --examples", path.display());
    Command::new(path)
}

fn device() -> String {
    std::env::var("VALKEY_RDMA_TEST_DEVICE").unwrap_or_else(|_| "emulated".to_owned())
}

fn address() -> String {
    std::env::var("VALKEY_RDMA_TEST_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned())
}

/// Numbers differ from run to run where the guide has `N`, and the address where it has `ADDRESS`.
fn matches(printed: &str, expected: &str) -> bool {
    let mut printed = printed.replace(&address(), "ADDRESS");
    if printed.starts_with("listening on ") {
        printed = printed.replace("127.0.0.1", "ADDRESS");
    }
    let words = |text: &str| text.split([' ', ':']).map(str::to_owned).collect::<Vec<_>>();
    let (printed, expected) = (words(&printed), words(expected));
    let same = |(printed, expected): (&String, &String)| {
        if expected == "N" { printed.parse::<u64>().is_ok() } else { printed == expected }
    };
    printed.len() == expected.len() && printed.iter().zip(&expected).all(same)
}

fn assert_printed(name: &str, printed: &str, mut expected: Vec<&str>) {
    for line in printed.lines() {
        let found = expected.iter().position(|expected| matches(line, expected));
        let found = found.unwrap_or_else(|| panic!("{name} printed {line:?}, of {expected:?}"));
        expected.remove(found);
    }
    assert!(expected.is_empty(), "{name} did not print {expected:?}");
}

#[test]
fn the_guide_has_every_example() {
    let mut listed = examples().iter().map(|example| example.name).collect::<Vec<_>>();
    listed.sort_unstable();
    let manifest = include_str!("../Cargo.toml");
    let mut there = manifest
        .split("[[example]]\nname = \"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"').map(|(name, _)| name))
        .collect::<Vec<_>>();
    there.sort_unstable();
    assert_eq!(listed, there);
    assert!(listed.len() >= 9, "{listed:?}");
}

#[test]
fn every_example_runs_alone() {
    for Example { name, listen, connect, alone } in examples() {
        let output = program(name).output().expect("starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
        let expected = listen.into_iter().chain(connect).chain(alone).collect();
        assert_printed(name, &String::from_utf8_lossy(&output.stdout), expected);
    }
}

#[test]
fn every_example_runs_as_two_processes() {
    for Example { name, listen, connect, .. } in
        examples().into_iter().filter(|example| !example.listen.is_empty())
    {
        let (address, device) = (address(), device());
        let mut listening = program(name)
            .args(["listen", "-a", &address, "-p", "0", "-d", &device])
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut output = BufReader::new(listening.stdout.take().expect("piped"));
        let mut printed = String::new();
        output.read_line(&mut printed).expect("its address");
        let port = printed.trim().rsplit(':').next().unwrap_or_default().to_owned();
        let connected = program(name)
            .args(["connect", "-a", &address, "-p", &port, "-d", &device])
            .output()
            .expect("starts");
        let errors = String::from_utf8_lossy(&connected.stderr);
        if !connected.status.success() {
            listening.kill().expect("kills");
            panic!("{name} connect: {errors}");
        }
        output.read_to_string(&mut printed).expect("the rest");
        assert!(listening.wait().expect("ends").success(), "{name} listen");
        assert_printed(name, &printed, listen);
        assert_printed(name, &String::from_utf8_lossy(&connected.stdout), connect);
    }
}

#[test]
fn nodes_of_a_mesh_are_processes_started_in_any_order() {
    let ports = [(); 3].map(|()| ReservedPort::at(address().parse().expect("an address of IP")));
    let addrs = ports.each_ref().map(|port| port.addr().to_string());
    let nodes = [2, 0, 1].map(|node: usize| {
        let mut command = program("mesh");
        command.args([&node.to_string(), &device()]).args(&addrs).stdout(Stdio::piped());
        (node, command.spawn().expect("starts"))
    });
    for (node, process) in nodes {
        let output = process.wait_with_output().expect("ends");
        let others = (0..3).filter(|other| *other != node).map(|other| other.to_string()).collect::<Vec<_>>();
        let expected = format!("node {node}: connected with {}\n", others.join(", "));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}

#[test]
fn mistakes_are_errors() {
    for (arguments, expected) in [
        (&["listen"][..], "-a and -p are needed"),
        (&["listen", "-a", "nowhere", "-p", "1"], "-a nowhere"),
        (&["connect", "-a", "127.0.0.1", "-p", "99999"], "-p 99999"),
        (&["connect", "-a", "127.0.0.1", "-p", "1", "-d", "infiniband"], "infiniband"),
        (&["dance"], "unknown argument"),
        (&["connect", "-a", "127.0.0.1", "-p", "1", "-d", "emulated"], "refused"),
    ] {
        let output = program("send_recv").args(arguments).output().expect("starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}
