//! Passwords that change: those in files, for clients that do not log in themselves, and those of clients.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use valkey_rdma_gateway::{Activation, Config, GatewayError, Limits, Share};
use valkey_rdma_mock::{Mock, MockCluster, MockServer, Reply};

use crate::scripted::{Scripted, expect};
use crate::support::{
    Client, PATIENCE, Running, advance, cluster_config, config, encode, gateway, get, mock_with, socket_path,
    start, text,
};

const NAME: &str = "valkey-rdma-gateway";

/// A file with a password, and a configuration that names it. The file goes with the test.
pub(crate) struct PasswordFile(PathBuf);

impl PasswordFile {
    pub(crate) fn new(password: &str, config: &mut Config) -> Self {
        let file = Self(socket_path().with_extension("password"));
        file.write(password);
        config.routes[0].password_file = Some(file.0.clone());
        file
    }

    pub(crate) fn write(&self, password: &str) {
        std::fs::write(&self.0, format!("{password}\n")).unwrap();
    }
}

impl Drop for PasswordFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_new_client_of_a_cluster_does_not_use_the_rights_of_those_before_it_required_a_login() {
    let mock = MockServer::start().await;
    let (host, port) = mock.tcp_url().split_once("://").unwrap().1.split_once(':').unwrap();
    let node = vec![
        Reply::bulk(host.to_owned()),
        Reply::Integer(port.parse().unwrap()),
        Reply::bulk("0123456789abcdef0123456789abcdef01234567"),
    ];
    let slots = vec![Reply::Integer(0), Reply::Integer(16_383), Reply::Array(node)];
    mock.on("CLUSTER SLOTS").reply(Reply::Array(vec![Reply::Array(slots)]));
    let user = |flags: &[&'static str]| {
        let flags = flags.iter().copied().map(Reply::bulk).collect();
        Reply::Array(vec![Reply::bulk("flags"), Reply::Array(flags)])
    };
    mock.on("ACL GETUSER").reply(user(&["on", "nopass"])).times(1);
    mock.on("ACL GETUSER").reply(user(&["on"]));
    let gateway = start(&cluster_config(vec![mock.tcp_url().to_owned()], Limits::default())).await;
    let mut before = gateway.client().await;
    assert_eq!(before.say("SET k v").await, "OK");
    advance(1).await;
    assert_eq!(gateway.client().await.say("GET k").await, "v");
    assert_eq!(before.say("CONFIG SET requirepass pw").await, "OK");
    advance(1).await;
    let newcomer_is_refused = async {
        while !gateway.client().await.say("GET k").await.starts_with("-NOAUTH") {
            yield_now().await;
        }
    };
    timeout(PATIENCE, newcomer_is_refused).await.expect("refused soon");
    assert!(before.say("GET k").await.starts_with("-NOAUTH"), "it gets a new connection too");
}

/// The transaction needs a new connection, which the server refuses, and the shared one is still logged in.
#[tokio::test]
async fn no_part_of_a_transaction_runs_if_the_server_requires_a_login_by_now() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("SET k v").await, "OK");
    assert_eq!(client.say("CONFIG SET requirepass pw").await, "OK");
    client.send(["MULTI", "SET k changed", "EXEC"].map(|line| encode(line.split(' '))).concat()).await;
    for _ in 0..3 {
        assert!(text(&client.reply().await).starts_with("-NOAUTH"));
    }
    assert_eq!(client.say("AUTH pw").await, "OK");
    assert_eq!(client.say("GET k").await, "v");
}

/// A connection that is logged in stays so. Directly, a new client has a new one.
#[tokio::test]
async fn a_new_client_does_not_use_the_rights_of_those_before_the_server_required_a_login() {
    let (_server, rdma, tcp) = mock_with(Mock::new()).await;
    for url in [&rdma, &tcp] {
        let gateway = gateway(url, Share::Auto).await;
        let (mut before, mut resp3) = (gateway.client().await, gateway.client().await);
        assert_eq!(before.say("SET k v").await, "OK");
        resp3.hello3("").await;
        assert_eq!(resp3.say("GET k").await, "v");
        assert_eq!(before.say("CONFIG SET requirepass pw").await, "OK");
        advance(1).await;
        let newcomer_is_refused = async {
            while !gateway.client().await.say("GET k").await.starts_with("-NOAUTH") {
                yield_now().await;
            }
        };
        timeout(PATIENCE, newcomer_is_refused).await.expect("refused soon");
        assert!(text(&gateway.client().await.hello3("").await).starts_with("-NOAUTH"));
        let mut newcomer = gateway.client().await;
        assert!(newcomer.say("WATCH k").await.starts_with("-NOAUTH"));
        assert_eq!(newcomer.say("AUTH pw").await, "OK");
        assert_eq!(newcomer.say("GET k").await, "v");
        assert!(before.say("GET k").await.starts_with("-NOAUTH"), "it gets a new connection too");
        assert_eq!(before.say("AUTH pw").await, "OK");
        before.send(encode(["CONFIG", "SET", "requirepass", ""])).await;
        assert_eq!(text(&before.reply().await), "OK");
        let newcomer_is_admitted = async {
            while gateway.client().await.say("GET k").await != "v" {
                yield_now().await;
            }
        };
        timeout(PATIENCE, newcomer_is_admitted).await.expect("admitted again");
    }
}

/// The server had logged it in again by RESET, and the gateway reads that only after the server has begun to require a login.
#[tokio::test]
async fn a_connection_that_was_reset_before_the_server_required_a_login_gets_no_new_client() {
    let mock = Mock::new();
    // It follows RESET.
    let slow = mock.on("HELLO").with("2").delay(Duration::from_secs(3));
    let (_server, rdma, _) = mock_with(mock).await;
    let gateway = gateway(&rdma, Share::Auto).await;
    let (mut client, mut subscriber) = (gateway.client().await, gateway.client().await);
    assert_eq!(client.say("SET k v").await, "OK");
    subscriber.say("SUBSCRIBE c").await;
    drop(subscriber);
    let is_reset = async {
        while slow.matched() == 0 {
            yield_now().await;
        }
    };
    timeout(PATIENCE, is_reset).await.expect("reset soon");
    assert_eq!(client.say("CONFIG SET requirepass pw").await, "OK");
    advance(1).await;
    assert!(gateway.client().await.say("GET k").await.starts_with("-NOAUTH"));
    advance(3).await;
    for _ in 0..30 {
        sleep(Duration::from_millis(10)).await;
        assert!(client.say("WATCH k").await.starts_with("-NOAUTH"));
    }
}

/// A server closes its connections; the gateway's end without those of its clients.
#[tokio::test]
async fn a_client_whose_password_has_changed_is_closed_so_that_it_logs_in_anew() {
    let (_server, _, url) = mock_with(Mock::new().requirepass("old")).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut client, mut idle) = (gateway.client().await, gateway.client().await);
    for client in [&mut client, &mut idle] {
        assert_eq!(client.say("AUTH old").await, "OK");
        assert_eq!(client.say("PING").await, "PONG");
    }
    let addr = url.split_once("://").unwrap().1;
    let mut server = Client::new(TcpStream::connect(addr).await.unwrap());
    assert_eq!(server.say("AUTH old").await, "OK");
    assert_eq!(server.say("CONFIG SET requirepass new").await, "OK");
    assert_eq!(client.say("PING").await, "PONG", "its connection is logged in");
    assert!(server.say("CLIENT KILL TYPE normal SKIPME yes").await.starts_with(':'));
    // The shared one, and the one that checks logins.
    gateway.until("gateway_connections_lost", |count| count == 2).await;
    assert!(client.say("PING").await.starts_with("-WRONGPASS"));
    client.expect_end().await;
    let mut again = gateway.client().await;
    assert_eq!(again.say("AUTH new").await, "OK");
    assert_eq!(again.say("PING").await, "PONG");
    // A private connection cannot be made either.
    assert!(idle.say("MULTI").await.starts_with("-WRONGPASS"));
    idle.expect_end().await;
}

/// A user who may not run SELECT, or anything else that the gateway needs to connect, has the right password.
#[tokio::test]
async fn a_client_that_may_not_select_a_database_is_not_closed() {
    let mock = Mock::new().requirepass("secret");
    mock.on("SELECT").error("NOPERM User default has no permissions to run the 'select' command");
    let (_server, _, url) = mock_with(mock).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("AUTH secret").await, "OK");
    assert!(client.say("SELECT 1").await.starts_with("-NOPERM "));
    assert_eq!(client.say("SET k v").await, "OK");
}

/// The next connection, logged in with this AUTH.
async fn accept(server: &Scripted, auth: &[&str]) -> TcpStream {
    server.accept_after(&[&encode(auth)], NAME, 7).await
}

#[tokio::test]
async fn clients_that_do_not_log_in_have_the_login_of_the_route() {
    for (user, share, name, auth) in [
        (None, Share::Auto, NAME, &["AUTH", "one"][..]),
        (Some("app"), Share::Auto, NAME, &["AUTH", "app", "one"]),
        (Some("app"), Share::Never, "", &["AUTH", "app", "one"]),
    ] {
        let server = Scripted::start().await;
        let mut config = config(&server.url, share, Limits::default());
        let _file = PasswordFile::new("one", &mut config);
        config.routes[0].user = user.map(str::to_owned);
        let running = start(&config).await;
        let mut client = running.client().await;
        client.command("GET a").await;
        let mut connection = server.accept_after(&[&encode(auth)], name, 7).await;
        expect(&mut connection, &encode(["GET", "a"])).await;
        connection.write_all(b"+A\r\n").await.unwrap();
        client.expect_bytes(b"+A\r\n").await;
    }
}

// C.f. a rotation: the server takes both passwords, the file changes, the server takes the new one only.
#[tokio::test]
async fn a_changed_password_holds_for_clients_that_there_are() {
    let server = Scripted::start().await;
    let mut config = config(&server.url, Share::Auto, Limits::default());
    let file = PasswordFile::new("one", &mut config);
    let mut running = start(&config).await;
    let mut client = running.client().await;
    client.command("GET a").await;
    let mut connection = accept(&server, &["AUTH", "one"]).await;
    expect(&mut connection, &encode(["GET", "a"])).await;
    connection.write_all(b"+A\r\n").await.unwrap();
    client.expect_bytes(b"+A\r\n").await;

    file.write("two");
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    client.command("GET b").await;
    expect(&mut connection, &encode(["GET", "b"])).await;
    connection.write_all(b"+B\r\n").await.unwrap();
    client.expect_bytes(b"+B\r\n").await;

    // A new file that holds no password changes nothing.
    file.write("");
    let refused = running.gateway.reload(&config, &Activation::default()).await.unwrap_err();
    assert!(matches!(&refused, GatewayError::Password { path, .. } if *path == file.0), "{refused}");
    drop(connection);
    client.command("GET c").await;
    let mut connection = accept(&server, &["AUTH", "two"]).await;
    expect(&mut connection, &encode(["GET", "c"])).await;
    connection.write_all(b"+C\r\n").await.unwrap();
    client.expect_bytes(b"+C\r\n").await;
}

/// A gateway whose password the server has refused, with one client.
struct Refused {
    server: Scripted,
    config: Config,
    file: PasswordFile,
    running: Running,
    client: Client,
    _connection: TcpStream,
}

impl Refused {
    async fn new() -> Self {
        let server = Scripted::start().await;
        let mut config = config(&server.url, Share::Auto, Limits::default());
        let file = PasswordFile::new("one", &mut config);
        let running = start(&config).await;
        let mut client = running.client().await;
        client.command("GET a").await;
        let _connection = refuse(&server, &["AUTH", "one"]).await;
        client.expect_bytes(WRONGPASS).await;
        Self { server, config, file, running, client, _connection }
    }

    async fn reload(&mut self) {
        self.running.gateway.reload(&self.config, &Activation::default()).await.expect("valid");
    }
}

#[tokio::test]
async fn a_connection_that_was_refused_tries_a_mended_password_without_a_command() {
    let mut gateway = Refused::new().await;
    // The server may have learned it meanwhile.
    gateway.reload().await;
    let _refused = refuse(&gateway.server, &["AUTH", "one"]).await;

    gateway.file.write("two");
    gateway.reload().await;
    let _connection = accept(&gateway.server, &["AUTH", "two"]).await;
}

#[tokio::test]
async fn the_refusal_of_another_login_is_no_answer() {
    let mut gateway = Refused::new().await;
    gateway.file.write("two");
    gateway.config.limits.offline_ms = 100;
    gateway.reload().await;
    let mut silent = gateway.server.accept_raw().await;
    expect(&mut silent, &encode(["AUTH", "two"])).await;
    gateway.client.command("GET b").await;
    gateway.client.expect_end().await;
}

#[tokio::test]
async fn health_asks_with_the_password_that_was_read_last() {
    let server = Scripted::start().await;
    let mut config = config(&server.url, Share::Auto, Limits::default());
    config.metrics = Some("127.0.0.1:0".parse().unwrap());
    let file = PasswordFile::new("one", &mut config);
    let mut running = start(&config).await;
    let addr = running.gateway.metrics_addr().unwrap();
    let asked = tokio::spawn(get(addr, "/health"));
    let mut probe = server.accept_after(&[&encode(["AUTH", "one"])], "", 7).await;
    expect(&mut probe, &encode(["PING"])).await;
    probe.write_all(b"+PONG\r\n").await.unwrap();
    assert!(asked.await.unwrap().ends_with("\r\n\r\nok\n"));

    // With the same password, the connection stays. An answer counts for some time, so the next question may be one of many.
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    let addr = running.gateway.metrics_addr().unwrap();
    let ping = encode(["PING"]);
    tokio::select! {
        () = async { while get(addr, "/health").await.ends_with("\r\n\r\nok\n") {} } => panic!("not healthy"),
        () = expect(&mut probe, &ping) => {}
    }
    probe.write_all(b"+PONG\r\n").await.unwrap();

    file.write("two");
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    let addr = running.gateway.metrics_addr().unwrap();
    let asked = tokio::spawn(async move {
        loop {
            let answer = get(addr, "/health").await;
            if answer.contains("503") {
                return answer;
            }
            yield_now().await;
        }
    });
    let _refused = refuse(&server, &["AUTH", "two"]).await;
    assert!(asked.await.unwrap().contains("WRONGPASS"));
}

/// The next connection, whose AUTH is refused.
async fn refuse(server: &Scripted, auth: &[&str]) -> TcpStream {
    let mut connection = server.accept_raw().await;
    expect(&mut connection, &encode(auth)).await;
    connection.write_all(&[WRONGPASS, b"+OK\r\n+PONG\r\n:1\r\n"].concat()).await.unwrap();
    connection
}

const WRONGPASS: &[u8] = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n";

#[tokio::test]
async fn a_changed_password_holds_for_a_whole_cluster() {
    let mocks = MockCluster::builder(3).start().await.expect("free ports");
    let mut config = cluster_config(mocks.urls(), Limits::default());
    {
        let without_login = start(&config).await;
        assert_eq!(without_login.client().await.say("CONFIG SET requirepass two").await, "OK");
    }
    let file = PasswordFile::new("one", &mut config);
    let mut running = start(&config).await;
    let mut client = running.client().await;
    let keys: Vec<_> = (0..3).map(|node| mocks.key_of(node, 0)).collect();
    for (password, connects) in [("one", false), ("two", true), ("three", false), ("two", true)] {
        file.write(password);
        running.gateway.reload(&config, &Activation::default()).await.expect("valid");
        for key in &keys {
            let reply = client.say(&format!("GET {key}")).await;
            assert_eq!(reply.starts_with("-WRONGPASS"), !connects, "{password}: {reply}");
            assert_eq!(reply == "(nil)", connects, "{password}: {reply}");
        }
    }
}

#[tokio::test]
async fn a_login_is_in_one_place() {
    for url in ["valkey://:secret@127.0.0.1", "valkey://app:secret@127.0.0.1"] {
        let mut config = config(url, Share::Auto, Limits::default());
        let _file = PasswordFile::new("secret", &mut config);
        for cluster in [false, true] {
            config.routes[0].cluster = cluster;
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains("127.0.0.1:6379\" has a login in its URL"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(!format!("{config:?}").contains("secret"));
    }
}

/// A server that does not know a command quotes its arguments.
#[tokio::test]
async fn a_server_that_quotes_the_login_does_not_show_it_to_clients_and_health() {
    let mock = Mock::new();
    mock.on("HELLO")
        .error("ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 's3cret' ");
    mock.on("AUTH").error("ERR unknown command `AUTH`, with args beginning with: `s3cret`, ");
    let (_server, _, url) = mock_with(mock).await;
    let mut config = config(&url.replace("://", "://:s3cret@"), Share::Auto, Limits::default());
    config.metrics = Some("127.0.0.1:0".parse().unwrap());
    let running = start(&config).await;
    let mut client = running.client().await;
    assert_eq!(client.say("GET k").await, "-ERR unknown command `AUTH`");
    assert_eq!(client.say("WATCH k").await, "-ERR unknown command `AUTH`");
    assert_eq!(text(&running.client().await.hello3("").await), "-ERR unknown command 'HELLO'");
    let health = get(running.gateway.metrics_addr().unwrap(), "/health").await;
    assert!(health.ends_with(": -ERR unknown command `AUTH`\n"), "{health}");
}
