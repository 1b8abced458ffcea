//! Clients of a cluster that log in, and passwords that change.

use valkey_rdma_gateway::{Activation, Limits};
use valkey_rdma_mock::MockCluster;

use crate::passwords::PasswordFile;
use crate::support::{Running, cluster_config, start};

/// A cluster that requires this password.
async fn with_password(password: &str) -> MockCluster {
    let mocks = MockCluster::start(3).await.expect("free ports");
    require(&start(&cluster_config(mocks.urls(), Limits::default())).await, password).await;
    mocks
}

/// Changes the password of the cluster.
async fn require(gateway: &Running, password: &str) {
    let changed = gateway.client().await.say(&format!("CONFIG SET requirepass {password}")).await;
    assert_eq!(changed, "OK");
}

/// The transaction would run with the former login, or be answered in the former protocol.
#[tokio::test]
async fn watched_keys_count_as_changed_if_their_client_changes_login_or_protocol() {
    let mocks = with_password("pw").await;
    let mut config = cluster_config(mocks.urls(), Limits::default());
    let _file = PasswordFile::new("pw", &mut config);
    let gateway = start(&config).await;
    let mut client = gateway.client().await;
    // The second time, nothing changes.
    for (change, expected) in
        [("AUTH pw", "(nil)"), ("AUTH pw", "[OK]"), ("HELLO 3", "(nil)"), ("HELLO 3", "[OK]")]
    {
        assert_eq!(client.say("WATCH {u}k").await, "OK");
        match change {
            "HELLO 3" => drop(client.hello3("").await),
            line => assert_eq!(client.say(line).await, "OK"),
        }
        for (line, expected) in
            [("WATCH {u}l", "OK"), ("MULTI", "OK"), ("SET {u}k v", "QUEUED"), ("EXEC", expected)]
        {
            assert_eq!(client.say(line).await, expected, "{change}, {line}");
        }
    }
}

/// It would stay connected, and get no message any more.
#[tokio::test]
async fn a_subscriber_is_closed_if_its_login_is_refused_after_a_loss() {
    let mocks = with_password("one").await;
    let mut config = cluster_config(mocks.urls(), Limits::default());
    let file = PasswordFile::new("one", &mut config);
    let mut running = start(&config).await;
    let (mut without_login, mut with_login) = (running.client().await, running.client().await);
    assert_eq!(with_login.say("AUTH one").await, "OK");
    for client in [&mut without_login, &mut with_login] {
        assert_eq!(client.say("SUBSCRIBE c").await, "[subscribe c :1]");
    }
    require(&running, "two").await;
    file.write("two");
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    for node in 0..3 {
        mocks.disconnect(node).await;
    }
    without_login.expect_end().await;
    with_login.expect_end().await;
    let mut again = running.client().await;
    assert_eq!(again.say("SUBSCRIBE c").await, "[subscribe c :1]");
}
