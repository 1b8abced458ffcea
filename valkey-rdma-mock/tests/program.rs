//! The program `valkey-rdma-mock`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_mock::{DeviceKind, TransportConfig};
use valkey_rdma_transport::raw::Access;
use valkey_rdma_transport::{DirectMemory, FeatureSet, RemoteRange, Stream};

/// Longer than any step takes. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(300);

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_valkey-rdma-mock"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    program(args).output().unwrap()
}

/// A mock that is up, and what it printed.
struct Running {
    child: Child,
    urls: Vec<String>,
}

impl Running {
    fn start(args: &[&str], listeners: usize) -> Self {
        Self::of(&mut program(args), listeners)
    }

    fn of(command: &mut Command, listeners: usize) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let urls = lines.take(listeners).map(|line| line.unwrap().strip_prefix("ready ").unwrap().to_owned());
        let urls = urls.collect();
        Self { child, urls }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// What it wrote to standard error until its end.
    fn complaints(&mut self) -> String {
        let mut complaints = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        complaints
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already, in most tests.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_says_where_it_is_ready_and_answers_there() {
    let args = ["--port", "0", "--device", "emulated", "--tcp-port", "0", "--rx-size", "65536"];
    let mock = Running::start(&args, 2);
    assert!(mock.urls[0].starts_with("emulated://127.0.0.1:"), "{:?}", mock.urls);
    let tcp = mock.urls[1].strip_prefix("valkey://").unwrap();
    let mut stream = TcpStream::connect(tcp).unwrap();
    stream.write_all(b"PING\r\nQUIT\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "+PONG\r\n+OK\r\n");
}

/// As the connection on the emulated device reports.
#[tokio::test]
async fn window_and_polling_are_as_asked() {
    let args = ["--port", "0", "--device", "emulated", "--rx-size", "65536", "--poll", "busy"];
    let mock = Running::start(&args, 1);
    let addr = mock.urls[0].strip_prefix("emulated://").unwrap().parse().unwrap();
    let mut stream = Stream::connect(DeviceKind::Emulated, addr, &TransportConfig::default()).await.unwrap();
    stream.write_all(b"CLIENT LIST\r\n").await.unwrap();
    let mut reply = Vec::new();
    while !reply.ends_with(b"\n\r\n") {
        assert_ne!(stream.read_buf(&mut reply).await.unwrap(), 0);
    }
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.contains(" window=65536 ") && reply.contains(" poll=busy\n"), "{reply}");
}

/// The client names a length, and a wrong key. Such a value never arrives.
#[tokio::test]
async fn no_memory_is_allocated_for_a_value_before_its_bytes_arrive() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 393216; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_valkey-rdma-mock")]);
    command.args(["--port", "0", "--device", "emulated", "--threads", "1"]).env("MALLOC_ARENA_MAX", "1");
    let mock = Running::of(command.stdin(Stdio::null()), 1);
    let addr = mock.urls[0].strip_prefix("emulated://").unwrap().parse().unwrap();
    let config = TransportConfig::default().requires(FeatureSet::DIRECT);
    let mut stream = Stream::connect(DeviceKind::Emulated, addr, &config).await.unwrap();
    let memory = DirectMemory::allocate(4096).unwrap();
    let exposed = stream.expose(memory.take(0..4096).unwrap(), Access::RemoteRead).unwrap();
    let RemoteRange { addr: start, rkey, .. } = exposed.remote();
    let set = format!("BLOB.SET k 536870912 {} {start} 536870912\r\n", rkey ^ 0x5a5a);
    stream.write_all(set.as_bytes()).await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap_err();
    let mut other = Stream::connect(DeviceKind::Emulated, addr, &config).await.unwrap();
    other.write_all(b"PING\r\n").await.unwrap();
    let mut reply = [0; 7];
    other.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply, *b"+PONG\r\n");
}

#[test]
fn a_tcp_port_alone_means_no_rdma() {
    let mock = Running::start(&["--tcp-port", "0", "--requirepass", "secret"], 1);
    let mut stream = TcpStream::connect(mock.urls[0].strip_prefix("valkey://").unwrap()).unwrap();
    stream.write_all(b"PING\r\nAUTH secret\r\nQUIT\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "-NOAUTH Authentication required.\r\n+OK\r\n+OK\r\n");
}

#[test]
fn interrupt_and_terminate_end_it_in_good_order() {
    for name in ["-INT", "-TERM"] {
        let mut mock = Running::start(&["--tcp-port", "0"], 1);
        let mut stream = TcpStream::connect(mock.urls[0].strip_prefix("valkey://").unwrap()).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).unwrap();
        mock.signal(name);
        assert_eq!(stream.read(&mut reply).unwrap(), 0);
        drop(stream);
        assert!(mock.child.wait().unwrap().success(), "{name}");
        assert_eq!(mock.complaints(), "");
    }
}

#[test]
fn a_second_signal_does_not_wait_for_replies() {
    let mut mock = Running::start(&["--tcp-port", "0"], 1);
    let addr = mock.urls[0].strip_prefix("valkey://").unwrap();
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(b"PING\r\nDEBUG SLEEP 1000\r\n").unwrap();
    // It comes when the command after it has to wait.
    stream.read_exact(&mut [0; 7]).unwrap();
    mock.signal("-INT");
    // The first signal was handled when the listener is closed.
    let latest = Instant::now() + PATIENCE;
    while TcpStream::connect(addr).is_ok() {
        assert!(Instant::now() < latest, "the listener does not close");
    }
    mock.signal("-INT");
    assert_eq!(mock.child.wait().unwrap().code(), Some(1));
    assert_eq!(mock.complaints(), "error: stopped before all replies were delivered\n");
}

#[test]
fn the_emulated_device_has_a_port_of_this_machine_that_is_in_use() {
    let mut mock = Running::start(&["--port", "0", "--device", "emulated"], 1);
    let addr = mock.urls[0].strip_prefix("emulated://").unwrap().to_owned();
    let port = addr.strip_prefix("127.0.0.1:").unwrap();
    let output = run(&["--port", port, "--device", "emulated"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with(&format!("error: cannot listen on {addr} (emulated); stop")), "{stderr}");
    assert!(stderr.contains("; stop the program that listens there, or choose another port: "), "{stderr}");
    mock.signal("-TERM");
    assert!(mock.child.wait().unwrap().success());
    assert_eq!(mock.complaints(), "");
}

#[test]
fn bad_flags_are_one_line_and_exit_status_2() {
    for (args, says) in [
        (&["--port", "x"][..], "invalid value 'x' for '--port <N>'"),
        (&["--port", "65536"], "65536 is not in 0..=65535"),
        (&["--tcp-port"], "a value is required for '--tcp-port <N>'"),
        (&["--device", "magic"], "unknown device \"magic\": use `verbs` or `emulated`"),
        (&["--faults", "imm-ovr@3"], "in `imm-ovr@3`: unknown fault `imm-ovr`, did you mean `imm-over`?"),
        (&["--faults", "rdma://u:secret@h"], "invalid value 'rdma://***' for '--faults <SPEC>'; see --help"),
        (&["--direct", "yes"], "[possible values: on, off]"),
        (&["--poll", "Busy"], "unknown polling mode \"Busy\": use `event`, `busy` or `adaptive`"),
        (&["--rx-size", "0"], "0 is not in 1..=1073741824"),
        (&["--bind", "localhost"], "invalid IP address"),
        (&["--bind", "fe80::1%nosuch0"], "this machine has no network interface `nosuch0`"),
        (&["--cluster", "3", "--bind", "fe80::1"], "without its interface"),
        (&["--nosuch"], "unexpected argument '--nosuch'"),
        (&["--tcp-port", "0", "--rx-size", "65536"], "add --port N"),
        (&["--tcp-port", "0", "--poll", "busy"], "add --port N"),
        (&["--cluster", "0"], "0 is not in 1..=1000"),
        (&["--replicas", "1"], "--cluster <N>"),
        (&["--cluster", "3", "--requirepass", "x"], "cannot be used with"),
        (&["--cluster", "3", "--port", "1", "--tcp-port", "2"], "one of --port, --tcp-port"),
        (&["--tls-port", "0"], "--tls-cert <FILE>"),
        (&["--tls-port", "0", "--tls-cert", "c"], "--tls-key <FILE>"),
        (&["--tls-cert", "c", "--tls-key", "k"], "add --tls-port N or --tls-rdma-port N"),
        (&["--tls-port", "0", "--tls-client-auth", "no"], "--tls-cert <FILE>"),
        (
            &["--tls-port", "0", "--tls-cert", "c", "--tls-key", "k", "--tls-client-auth", "yes"],
            "no, optional or required",
        ),
        (&["--proxy", "127.0.0.1:1", "--tls-port", "0"], "cannot be used with"),
        (&["--cluster", "3", "--tcp-port", "65534"], "exceeds 65535"),
        (&["--cluster", "3", "--bind", "0.0.0.0"], "one that clients reach"),
    ] {
        let output = run(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(says), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_link_local_address_without_its_interface_is_explained() {
    let output = run(&["--tcp-port", "0", "--bind", "fe80::1"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("add the interface that leads to it, as in fe80::1%eth0"), "{stderr}");
}

#[cfg(feature = "tls")]
#[test]
fn a_certificate_that_is_not_there_is_one_line_and_exit_status_1() {
    let output = run(&["--tls-port", "0", "--tls-cert", "/no/such.crt", "--tls-key", "/no/such.key"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with("error: cannot read the certificate /no/such.crt: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn an_address_in_use_is_one_line_and_exit_status_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = run(&["--tcp-port", &port.to_string()]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with(&format!("error: cannot listen on 127.0.0.1:{port} (TCP); stop")), "{stderr}");
    assert!(stderr.contains("; stop the program that listens there, or choose another port: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[cfg(not(feature = "verbs"))]
#[test]
fn a_missing_device_is_one_line_and_exit_status_1() {
    let output = run(&["--port", "0"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr,
        "error: this build has no `verbs` device: rebuild with the cargo feature `verbs` (`--features verbs`); \
         or serve TCP instead, with --tcp-port N alone\n"
    );
}

#[test]
fn an_unspecified_address_is_announced_as_loopback() {
    let mock = Running::start(&["--bind", "0.0.0.0", "--tcp-port", "0"], 1);
    let addr = mock.urls[0].strip_prefix("valkey://127.0.0.1:").unwrap();
    TcpStream::connect(format!("127.0.0.1:{addr}")).unwrap();
}

/// Sends lines to a node, and returns all it answers.
fn ask(url: &str, lines: &str) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("valkey://").unwrap()).unwrap();
    stream.write_all(lines.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn a_cluster_listens_on_consecutive_ports_and_redirects() {
    // Another program may take one of the ports meanwhile.
    let (first, cluster) = (0..50)
        .find_map(|_| {
            let first = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let args = ["--cluster", "2", "--replicas", "1", "--tcp-port", &first.to_string()];
            first.checked_add(3)?;
            let mut child = program(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(4);
            let urls: Vec<_> =
                lines.map(|line| line.unwrap().strip_prefix("ready ").unwrap().to_owned()).collect();
            let running = Running { child, urls };
            (running.urls.len() == 4).then_some((first, running))
        })
        .expect("four ports in a row are free");
    let expected: Vec<_> = (first..first + 4).map(|port| format!("valkey://127.0.0.1:{port}")).collect();
    assert_eq!(cluster.urls, expected);
    // The slot of `a` is in the upper half: it belongs to node 1.
    let moved = format!("-MOVED 15495 127.0.0.1:{}\r\n+OK\r\n", first + 1);
    assert_eq!(ask(&cluster.urls[0], "SET a 1\r\nQUIT\r\n"), moved);
    assert_eq!(ask(&cluster.urls[1], "SET a 1\r\nQUIT\r\n"), "+OK\r\n+OK\r\n");
    assert_eq!(ask(&cluster.urls[3], "READONLY\r\nGET a\r\nQUIT\r\n"), "+OK\r\n$1\r\n1\r\n+OK\r\n");
    cluster.signal("-TERM");
    let mut cluster = cluster;
    assert!(cluster.child.wait().unwrap().success());
    assert_eq!(cluster.complaints(), "");
}

#[tokio::test]
async fn a_proxy_forwards_to_a_server_on_tcp() {
    let valkey = Running::start(&["--tcp-port", "0"], 1);
    let valkey_addr = valkey.urls[0].strip_prefix("valkey://").unwrap();
    let proxy = Running::start(&["--proxy", valkey_addr, "--device", "emulated", "--port", "0"], 1);
    let addr = proxy.urls[0].strip_prefix("emulated://").unwrap().parse().unwrap();
    let mut stream = Stream::connect(DeviceKind::Emulated, addr, &TransportConfig::default()).await.unwrap();
    stream.write_all(b"SET k v\r\nGET k\r\nQUIT\r\n").await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    assert_eq!(reply, b"+OK\r\n$1\r\nv\r\n+OK\r\n");
}

/// No system has that much memory for a thread's stack.
#[test]
fn threads_that_cannot_be_started_are_an_error_and_no_panic() {
    let mut command = program(&["--threads", "2", "--tcp-port", "0"]);
    let output = command.env("RUST_MIN_STACK", (1_u64 << 46).to_string()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("cannot start 2 threads") && !text.contains("panicked"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}
