//! `--direct`, against mocks on the emulated device.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::runtime::Runtime;
use valkey_rdma_mock::faults::Faults;
use valkey_rdma_mock::{Address, DeviceKind, Mock, MockServer, Server, TransportConfig};
use valkey_rdma_testkit::Folder;
use valkey_rdma_transport::{FeatureSet, Listener, device};

use crate::modes::right;
use crate::scripted::{stderr, stdout, tool};

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn run(url: &str, flags: &str) -> std::process::Output {
    tool(&["-u", url].into_iter().chain(flags.split(' ')).collect::<Vec<_>>())
}

/// The field of the first test in CSV.
fn field<'a>(csv: &'a str, name: &str) -> &'a str {
    let mut lines = csv.lines().map(|line| line.split(',').map(|cell| cell.trim_matches('"')));
    let (heads, mut cells) = (lines.next().unwrap(), lines.next().unwrap());
    heads.zip(cells.by_ref()).find(|(head, _)| *head == name).unwrap().1
}

#[test]
fn values_go_directly_and_every_byte_is_right() {
    let runtime = Runtime::new().unwrap();
    let mock = runtime.block_on(MockServer::start());
    for shape in [
        "-c 1 -n 20 -d 1000000",
        "-c 2 --tasks-per-connection 3 -P 4 -n 300 -d 1-30000 -r 50",
        "-c 1 --ratio 1:2 --populate missing -n 100 -d 9000 -r 10",
        "-c 1 -n 100 -d 3 --key-prefix p:",
    ] {
        mock.reset();
        let tests = if shape.contains("--ratio") { "" } else { " -t set,get" };
        let output = run(mock.url(), &format!("--direct --verify full --csv {shape}{tests}"));
        let csv = right(&output);
        assert_eq!((field(csv, "way"), field(csv, "transport")), ("direct", "emulated"), "{shape}");
        let received = mock.received();
        let count = |name: &str| received.iter().filter(|received| received.command.is(name)).count();
        assert_eq!(count("GET"), 0, "{shape}");
        assert!(count("BLOB.GET") > 20 && count("BLOB.SET") > 0, "{shape}");
    }
}

#[test]
fn both_ways_are_compared_and_reports_name_them() {
    let (runtime, folder) = (Runtime::new().unwrap(), Folder::new("direct"));
    let mock = runtime.block_on(MockServer::start());
    let file = folder.file("run.json");
    let flags = format!(
        "--direct --compare {} --compare-with tasks=1 -t set,get -c 1 -d 100000 -n 40 --rounds 2 --json {file}",
        mock.url()
    );
    assert!(right(&run(mock.url(), &flags)).contains("direct transfers"), "of the two sides");
    let json: Value = serde_json::from_str(&folder.read("run.json")).unwrap();
    let ways: Vec<_> =
        json["comparisons"][0]["sides"].as_array().unwrap().iter().map(|side| side["way"].clone()).collect();
    assert_eq!(ways, ["direct", "stream"], "{json}");
}

/// Figures of the stream never pass for those of direct transfers.
#[test]
fn where_values_would_go_over_the_stream_the_tool_measures_nothing() {
    let runtime = Runtime::new().unwrap();
    let rdma = Address::rdma(DeviceKind::Emulated, loopback(), &TransportConfig::default());
    let stock = runtime.block_on(Server::builder(Mock::new()).listen(rdma).start()).unwrap();
    let stock = stock.urls().next().unwrap();
    let mock = runtime.block_on(MockServer::start());
    let no_blob = format!("{}?direct_prefix=NONE", mock.url());
    for (url, flags, status, reason) in [
        (&stock[..], "", 1, "over the stream: the server does not offer direct transfers"),
        (&no_blob, "", 1, "direct_prefix= in the URL"),
        (mock.url(), "--direct-prefix NONE", 1, "unknown command"),
        (mock.tcp_url(), "", 2, "--direct needs RDMA, but the server is reached over tcp"),
        ("emulateds://127.0.0.1:1", "", 2, "asks for TLS"),
        (mock.url(), "--compare valkey://127.0.0.1:1", 2, "reached over tcp"),
        (mock.url(), "-t lpush", 2, "give -t set,get"),
        (mock.url(), "--ratio lpush:1", 2, "give -t set,get"),
        (mock.url(), "--pool", 2, "--pool"),
    ] {
        let output = run(url, ["--direct -n 10", flags].join(" ").trim_end());
        assert_eq!(output.status.code(), Some(status), "{url} {flags}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{url} {flags}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{url} {flags}");
    }
}

#[test]
fn a_server_that_replies_and_writes_nothing_is_found_out() {
    let runtime = Runtime::new().unwrap();
    let _context = runtime.enter();
    let config = TransportConfig::default();
    let options = config.clone().requires(FeatureSet::DIRECT).device_options();
    let honest = runtime.block_on(device::listen(DeviceKind::Emulated, loopback(), &options)).unwrap();
    let url = format!("emulated://{}", honest.local_addr());
    let faults: Faults = "transfer-missing@3..".parse().unwrap();
    let listener = Listener::over(faults.listener(honest), &config);
    let _server =
        runtime.block_on(Server::builder(Mock::new()).direct(true).listener(listener).start()).unwrap();
    let output = run(&url, "--direct --verify full -t get --populate all -c 1 -n 10 -r 10 -d 20000");
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("wrong bytes"), "{}", stderr(&output));
}
