//! Clients of a cluster that log in, and passwords that change.

use valkey_rdma_gateway::Limits;
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
