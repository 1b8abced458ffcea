//! Real Sentinels and servers, on this machine over TCP, or in the lab over RDMA.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use valkey_rdma_client::pubsub::{Event, Subscription};
use valkey_rdma_client::{Client, Config};
use valkey_rdma_testkit::Folder;

use crate::scripted::certificates;

/// A process in a folder of its own, killed at the end.
struct Running {
    process: Child,
    _folder: Folder,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(server: &Path, name: &str, args: &[&str], config: Option<&str>) -> Running {
    let folder = Folder::new(name);
    let mut command = Command::new(server);
    if let Some(config) = config {
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, config).expect("a file");
        command.arg(file).arg("--sentinel");
    }
    command
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Running { process: command.spawn().expect("valkey-server starts"), _folder: folder }
}

/// The settings of a port, as names and values: of TLS, if the environment asks for that as for mocks.
fn listening(port: &str) -> Vec<(&'static str, String)> {
    let Some(folder) = certificates() else { return vec![("port", port.to_owned())] };
    let file = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    vec![
        ("port", "0".to_owned()),
        ("tls-port", port.to_owned()),
        ("tls-cert-file", file("server.crt")),
        ("tls-key-file", file("server.key")),
        ("tls-ca-cert-file", file("ca.crt")),
        ("tls-auth-clients", "no".to_owned()),
        ("tls-replication", "yes".to_owned()),
    ]
}

/// Kills the primary, and expects the client and its subscriber to go on with the replica that the Sentinels promote.
///
/// In the lab, with `VALKEY_RDMA_TEST_DEVICE=verbs` and `VALKEY_RDMA_TEST_ADDR`, the client uses RDMA.
#[tokio::test]
#[ignore = "wants a real valkey-server in VALKEY_RDMA_REAL_SERVER"]
async fn a_client_follows_real_sentinels_to_the_next_primary() {
    let server =
        PathBuf::from(std::env::var_os("VALKEY_RDMA_REAL_SERVER").expect("the path of a valkey-server"));
    let rdma = std::env::var("VALKEY_RDMA_TEST_DEVICE").is_ok_and(|device| device == "verbs");
    let bind = if rdma {
        std::env::var("VALKEY_RDMA_TEST_ADDR").expect("an address")
    } else {
        "127.0.0.1".to_owned()
    };
    let module = server.with_file_name("valkey-rdma.so");
    let module = module.to_str().expect("a path");
    let node = |name: &str, port: &str, more: &[&str]| {
        let listening = listening(port).into_iter().flat_map(|(name, value)| [format!("--{name}"), value]);
        let listening: Vec<_> = listening.collect();
        let mut args = vec!["--bind", &bind, "--save", "", "--protected-mode", "no"];
        args.extend(listening.iter().map(String::as_str));
        if rdma {
            args.extend(["--loadmodule", module, "--rdma-bind", &bind, "--rdma-port", port]);
        }
        args.extend(more);
        start(&server, name, &args, None)
    };
    let primary = node("primary", "7691", &[]);
    let _replica =
        node("replica", "7692", &["--replicaof", &bind, "7691", "--repl-diskless-sync-delay", "0"]);
    let config = |port: u16| {
        let listening = listening(&port.to_string());
        let listening: String = listening.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
        format!(
            "{listening}bind {bind}\nprotected-mode no\nsentinel monitor mymaster {bind} 7691 2\n\
             sentinel down-after-milliseconds mymaster 1000\nsentinel failover-timeout mymaster 5000\n"
        )
    };
    let _sentinels =
        [7694, 7695, 7696].map(|port| start(&server, &port.to_string(), &[], Some(&config(port))));

    let tcp = if certificates().is_some() { "valkeys" } else { "valkey" };
    // Until the Sentinels know the replica and each other.
    let ready = async |port: u16| -> Option<()> {
        let client = Client::connect(format!("{tcp}://{bind}:{port}")).await.ok()?;
        let state = client.command(["SENTINEL", "MASTER", "mymaster"]).await.ok()?;
        let fields =
            state.as_map()?.iter().filter_map(|(name, value)| Some((name.as_str()?, value.as_str()?)));
        let count = |wanted: &str| {
            fields.clone().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned())
        };
        (count("num-slaves")? == "1" && count("num-other-sentinels")? == "2").then_some(())
    };
    for port in [7694, 7695, 7696] {
        until("the Sentinels know all", async || ready(port).await.is_some()).await;
    }
    let scheme = if rdma { "rdma" } else { tcp };
    let url = format!("{scheme}+sentinel://{bind}:7694,{bind}:7695,{bind}:7696/mymaster");
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-@dangerous"];
    let admin = Client::connect(format!("{tcp}://{bind}:7691")).await.expect("connected");
    admin.command(user).await.expect("created");
    for protocol in ["resp2", "resp3"] {
        let url = url.replace("://", "://app:pw@") + "?protocol=" + protocol;
        let client = Client::connect(url.as_str()).await;
        let client = client.unwrap_or_else(|error| panic!("a user without ROLE, {protocol}: {error:#}"));
        client.command(["PING"]).await.expect("allowed");
    }
    let patient = Config::default().offline_timeout(PATIENCE).command_timeout(PATIENCE);
    let client = Client::connect_with(url, &patient).await.expect("connected");
    let mut writer = client.dedicated().await.expect("connected");
    writer.command(["SET", "k", "before"]).await.expect("written");
    let replicas: i64 = writer.query(["WAIT", "1", "20000"]).await.expect("counted");
    assert_eq!(replicas, 1, "with the write");
    assert!(client.info().peer.is_some_and(|peer| peer.port() == 7691));

    let mut subscriber = client.subscriber().await.expect("connected");
    subscriber.subscribe(Subscription::Channel, ["news"]).await.expect("subscribed");
    drop(primary);
    until("the client writes to the next primary", async || {
        client.command(["SET", "k", "after"]).await.is_ok()
    })
    .await;
    assert!(client.info().peer.is_some_and(|peer| peer.port() == 7692));
    let event = timeout(PATIENCE, subscriber.next()).await.expect("it follows").expect("not the end");
    assert_eq!(event, Event::Reconnected);
    client.command(["PUBLISH", "news", "after"]).await.expect("published");
    let event = timeout(PATIENCE, subscriber.next()).await.expect("a message").expect("not the end");
    assert!(matches!(event, Event::Message(message) if message.payload == "after"));
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Also enough on an emulated processor.
const PATIENCE: Duration = Duration::from_secs(120);
