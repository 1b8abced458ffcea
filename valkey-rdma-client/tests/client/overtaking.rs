//! Commands that end others, or are of use while others wait, against a server that runs a script without end.
//!
//! The server is a real one of the test's own, on this machine over TCP: other tests would find it busy.

use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use valkey_rdma_client::cluster::ReadFrom;
use valkey_rdma_client::{Client, Config, Error, Fate, Value};
use valkey_rdma_testkit::{Folder, ReservedPort};

/// A server in a folder of its own, killed at the end: while it runs a script, it takes no other signal.
struct Busy {
    _reserved: ReservedPort,
    _folder: Folder,
    process: Child,
    url: String,
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Busy {
    async fn start(more: &[&str]) -> Self {
        let server = std::env::var_os("VALKEY_RDMA_REAL_SERVER")
            .expect("VALKEY_RDMA_REAL_SERVER names a valkey-server");
        let reserved = ReservedPort::new();
        let port = reserved.addr().port().to_string();
        let folder = Folder::new("busy");
        let process = Process::new(server)
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--busy-reply-threshold", "50"])
            .args(more)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("valkey-server starts");
        let server =
            Self { _reserved: reserved, _folder: folder, process, url: format!("valkey://127.0.0.1:{port}") };
        let end = Instant::now() + PATIENCE;
        while Client::connect(server.url.as_str()).await.is_err() {
            assert!(Instant::now() < end, "the server does not start");
            sleep(Duration::from_millis(20)).await;
        }
        server
    }

    /// Waits until it answers BUSY.
    async fn is_busy(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the script does not run");
            let Ok(other) = Client::connect(self.url.as_str()).await else { continue };
            match other.command(["PING"]).await {
                Err(error) if error.server().is_some_and(|error| error.code == "BUSY") => return,
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

fn start(client: &Client, words: &[&str]) -> JoinHandle<Result<Value, Error>> {
    let (client, command) = (client.clone(), valkey_rdma_client::Command::from_args(words));
    tokio::spawn(async move { client.command(command).await })
}

const LOOP: [&str; 3] = ["EVAL", "while true do end", "0"];

/// Loads a function that runs for ever.
async fn load_endless(client: &Client) {
    let library = "#!lua name=endless\nserver.register_function('endless', function() while true do end end)";
    client.command(["FUNCTION", "LOAD", "REPLACE", library]).await.expect("loaded");
}

#[tokio::test]
#[ignore = "wants a real valkey-server in VALKEY_RDMA_REAL_SERVER"]
async fn a_client_ends_its_own_scripts_and_functions() {
    let server = Busy::start(&[]).await;
    let config = Config::default().name("ours");
    for options in ["", "?protocol=resp2", "/3"] {
        let client =
            Client::connect_with(format!("{}{options}", server.url), &config).await.expect("connected");
        load_endless(&client).await;
        for (endless, kill) in
            [(&LOOP[..], ["SCRIPT", "KILL"]), (&["FCALL", "endless", "0"], ["FUNCTION", "KILL"])]
        {
            let runs = start(&client, endless);
            server.is_busy().await;
            if kill[0] == "FUNCTION" {
                let stats = client.command(["FUNCTION", "STATS"]).await.expect("answered meanwhile");
                assert!(format!("{stats:?}").contains("endless"), "{stats:?}");
            }
            assert!(client.command(kill).await.expect("killed").is_ok());
            let error = runs.await.expect("no panic").expect_err("killed");
            assert_eq!(error.fate(), Fate::Answered, "{error}");
            client.command(["PING"]).await.expect("the connection has lived on");
        }
    }
}

#[tokio::test]
#[ignore = "wants a real valkey-server in VALKEY_RDMA_REAL_SERVER"]
async fn a_client_ends_the_pause_that_holds_its_own_write() {
    let server = Busy::start(&[]).await;
    let client = Client::connect(server.url.as_str()).await.expect("connected");
    client.command(["CLIENT", "PAUSE", "3600000", "WRITE"]).await.expect("paused");
    let write = start(&client, &["SET", "k", "v"]);
    let other = Client::connect(server.url.as_str()).await.expect("connected");
    let end = Instant::now() + PATIENCE;
    while !other
        .query::<String>(["INFO", "clients"])
        .await
        .expect("answered")
        .contains("paused_reason:client_pause")
    {
        assert!(Instant::now() < end, "not paused");
    }
    assert!(client.command(["CLIENT", "UNPAUSE"]).await.expect("answered").is_ok());
    assert!(write.await.expect("no panic").expect("written").is_ok());
}

#[tokio::test]
#[ignore = "wants a real valkey-server in VALKEY_RDMA_REAL_SERVER"]
async fn a_client_shuts_down_a_server_that_runs_its_script() {
    let mut server = Busy::start(&[]).await;
    let client = Client::connect_with(server.url.as_str(), &Config::default().reconnect(None)).await;
    let client = client.expect("connected");
    let runs = start(&client, &LOOP);
    server.is_busy().await;
    let ended = client.command(["SHUTDOWN", "NOSAVE"]).await.expect_err("no reply comes");
    assert!(matches!(ended, Error::Lost(_)), "{ended}");
    runs.await.expect("no panic").expect_err("the server is gone");
    server.process.wait().expect("it has ended");
}

#[tokio::test]
#[ignore = "wants a real valkey-server in VALKEY_RDMA_REAL_SERVER"]
async fn a_cluster_client_ends_its_own_scripts_and_functions() {
    let server = Busy::start(&["--cluster-enabled", "yes"]).await;
    let admin = Client::connect(server.url.as_str()).await.expect("connected");
    admin.command(["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.expect("added");
    let end = Instant::now() + PATIENCE;
    while !admin.query::<String>(["CLUSTER", "INFO"]).await.expect("answered").contains("cluster_state:ok") {
        assert!(Instant::now() < end, "the cluster is down");
        sleep(Duration::from_millis(20)).await;
    }
    load_endless(&admin).await;
    for read_from in [ReadFrom::Primary, ReadFrom::PreferReplica] {
        let config = Config::default().read_from(read_from);
        let cluster = Client::connect_with([server.url.as_str()], &config).await.expect("connected");
        for (endless, kill) in [
            (["EVAL", "while true do end", "1", "k"], ["SCRIPT", "KILL"]),
            (["FCALL", "endless", "1", "k"], ["FUNCTION", "KILL"]),
        ] {
            let runs = tokio::spawn({
                let cluster = cluster.clone();
                async move { cluster.command(endless).await }
            });
            server.is_busy().await;
            assert!(cluster.command(kill).await.expect("killed").is_ok());
            let error = runs.await.expect("no panic").expect_err("killed");
            assert_eq!(error.fate(), Fate::Answered, "{error}");
        }
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
#[ignore = "wants a real valkey-server in VALKEY_RDMA_REAL_SERVER"]
async fn commands_of_redis_rs_end_its_own_scripts() {
    let server = Busy::start(&[]).await;
    let mut client = Client::connect(server.url.as_str()).await.expect("connected");
    let runs = start(&client, &LOOP);
    server.is_busy().await;
    let () = redis::cmd("SCRIPT").arg("KILL").query_async(&mut client).await.expect("killed");
    runs.await.expect("no panic").expect_err("killed");
}

#[cfg(feature = "blocking")]
#[test]
#[ignore = "wants a real valkey-server in VALKEY_RDMA_REAL_SERVER"]
fn a_thread_ends_the_script_of_another() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime to wait in");
    let server = runtime.block_on(Busy::start(&[]));
    let client = valkey_rdma_client::blocking::Client::connect(server.url.as_str()).expect("connected");
    let runs = std::thread::spawn({
        let client = client.clone();
        move || client.command(LOOP)
    });
    runtime.block_on(server.is_busy());
    assert!(client.command(["SCRIPT", "KILL"]).expect("killed").is_ok());
    runs.join().expect("no panic").expect_err("killed");
}

/// Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(120);
