//! Sockets that systemd has bound, at a reload. The first is descriptor 3.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tokio::net::TcpStream;
use valkey_rdma_mock::Mock;
#[cfg(feature = "tls")]
use valkey_rdma_testkit::Authority;
use valkey_rdma_testkit::Signal;

use crate::reported;
use crate::support::{Client, mock_with, socket_path};

struct Gateway {
    child: Child,
    /// As systemd, the test keeps the socket open.
    _passed: TcpListener,
    systemd: UnixDatagram,
    folder: PathBuf,
    url: String,
}

impl Gateway {
    /// With this socket, and these addresses to listen on.
    fn start(url: &str, passed: TcpListener, listen: &[&str]) -> Self {
        Self::start_with(url, passed, listen, "")
    }

    /// With more lines in the configuration, until the first reload.
    fn start_with(url: &str, passed: TcpListener, listen: &[&str], more: &str) -> Self {
        let folder = socket_path().with_extension("folder");
        std::fs::create_dir(&folder).unwrap();
        write(&folder, url, listen, more);
        let systemd = UnixDatagram::bind(folder.join("systemd")).unwrap();
        let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_valkey-rdma-gateway"), "--config"]);
        command
            .arg(folder.join("config.toml"))
            .env("NOTIFY_SOCKET", folder.join("systemd"))
            .env_remove("RUST_LOG");
        command.stdin(OwnedFd::from(passed.try_clone().unwrap())).stdout(Stdio::null());
        command.stderr(File::create(folder.join("log")).unwrap());
        let child = command.spawn().unwrap();
        assert_eq!(reported(&systemd), "READY=1");
        Self { child, _passed: passed, systemd, folder, url: url.to_owned() }
    }

    /// Returns what the gateway reports.
    fn reload(&self, listen: &[&str]) -> String {
        write(&self.folder, &self.url, listen, "");
        self.signal(Signal::HUP);
        reported(&self.systemd)
    }

    fn signal(&self, signal: Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).unwrap();
    }

    fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
        log
    }
}

fn write(folder: &Path, url: &str, listen: &[&str], more: &str) {
    let text = format!("[[route]]\nlisten = {listen:?}\nserver = \"{url}\"\n{more}");
    std::fs::write(folder.join("config.toml"), text).unwrap();
}

async fn ping(addr: SocketAddr) -> String {
    Client::new(TcpStream::connect(addr).await.unwrap()).say("PING").await
}

const UNSERVED: &str = "a socket was passed that no `listen` names";
const TAKEN_OVER: &str = "STATUS=configuration read again";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passed_socket_can_leave_the_configuration_and_come_back() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let passed = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = passed.local_addr().unwrap();
    let (tcp, other) = (format!("tcp:{addr}"), format!("unix:{}", socket_path().display()));
    let gateway = Gateway::start(&url, passed, &[&tcp, &other]);
    assert_eq!(ping(addr).await, "PONG");
    assert_eq!(gateway.reload(&[&other]), TAKEN_OVER);
    // It waits in the socket.
    let mut waits = Client::new(TcpStream::connect(addr).await.unwrap());
    assert_eq!(gateway.reload(&[&tcp, &other]), TAKEN_OVER);
    assert_eq!(waits.say("PING").await, "PONG");
    let log = gateway.stop();
    assert_eq!(log.matches(UNSERVED).count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passed_socket_survives_a_reload_that_fails() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let [passed, taken] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addr = passed.local_addr().unwrap();
    let (tcp, other) = (format!("tcp:{addr}"), format!("unix:{}", socket_path().display()));
    let gateway = Gateway::start(&url, passed, &[&other]);
    let in_use = format!("tcp:{}", taken.local_addr().unwrap());
    let refused = gateway.reload(&[&tcp, &in_use, &other]);
    let expected = format!("cannot listen on {in_use}; stop the program that listens there");
    assert!(refused.contains(&expected) && refused.contains("Address already in use"), "{refused}");
    assert_eq!(gateway.reload(&[&tcp, &other]), TAKEN_OVER);
    assert_eq!(ping(addr).await, "PONG");
    let wide = format!("tcp:0.0.0.0:{}", addr.port());
    let refused = gateway.reload(&[&wide, &other]);
    let reason = format!("systemd holds {addr}: name the same address in `listen` and in the socket unit");
    assert!(refused.ends_with(&reason), "{refused}");
    let log = gateway.stop();
    assert_eq!(log.matches(UNSERVED).count(), 1, "at the start: {log}");
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passed_socket_may_be_for_tls() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let passed = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = passed.local_addr().unwrap();
    let issuer = Authority::new("An issuer");
    let pair = issuer.issue(&["127.0.0.1"]);
    let table = format!("[route.tls]\ncert = {:?}\nkey = {:?}\n", pair.cert, pair.key);
    let gateway = Gateway::start_with(&url, passed, &[&format!("tls:{addr}")], &table);
    let client =
        valkey_rdma_client::Client::connect(format!("valkeys://{addr}?ca={}", issuer.ca().display()));
    assert_eq!(client.await.unwrap().command(["ECHO", "x"]).await.unwrap().as_str(), Some("x"));
    let log = gateway.stop();
    assert!(!log.contains(UNSERVED), "{log}");
}
