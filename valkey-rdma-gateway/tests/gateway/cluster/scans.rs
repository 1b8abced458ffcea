//! SCAN through a gateway in front of a cluster.

use valkey_rdma_gateway::{Activation, Limits};
use valkey_rdma_mock::MockCluster;
use valkey_rdma_resp::Value;

use super::cluster;
use crate::passwords::PasswordFile;
use crate::support::{Client, cluster_config, encode, start, text};

/// Writes more keys than a step returns.
async fn fill(client: &mut Client) {
    for number in 0..30 {
        assert_eq!(client.say(&format!("SET {number} x")).await, "OK");
    }
}

/// The cursor of a reply, which is not the last.
fn cursor(reply: &Value) -> String {
    let Some([cursor, _]) = reply.as_slice() else { panic!("{reply:?}") };
    assert_ne!(text(cursor), "0");
    text(cursor)
}

/// The keys of a reply.
fn keys(reply: &Value) -> String {
    let Some([_, keys]) = reply.as_slice() else { panic!("{reply:?}") };
    text(keys)
}

async fn begin(client: &mut Client) -> String {
    cursor(&client.call("SCAN 0 COUNT 1").await)
}

#[tokio::test]
async fn a_scan_that_begins_behind_a_script_goes_on() {
    let (_mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    fill(&mut client).await;
    let script = encode(["EVAL", "return 1", "0"]);
    client.send([script, encode(["SCAN", "0", "COUNT", "1"])].concat()).await;
    client.reply().await;
    let first = cursor(&client.reply().await);
    cursor(&client.call(&format!("SCAN {first}")).await);
}

#[tokio::test]
async fn no_client_continues_the_scan_of_a_stranger() {
    let (_mocks, gateway) = cluster().await;
    let (mut one, mut stranger) = (gateway.client().await, gateway.client().await);
    fill(&mut one).await;
    stranger.hello3("").await;
    let (first, own) = (begin(&mut one).await, begin(&mut stranger).await);
    let refused = stranger.say(&format!("SCAN {first}")).await;
    assert!(refused.contains("begin again with 0"), "{refused}");
    cursor(&stranger.call(&format!("SCAN {own}")).await);
}

/// A client whose connection is lost before the reply has come sends the same cursor again.
#[tokio::test]
async fn a_step_of_a_scan_can_be_repeated_until_the_next_one() {
    let (_mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    fill(&mut client).await;
    let first = begin(&mut client).await;
    let lost = client.call(&format!("SCAN {first}")).await;
    let again = gateway.client().await.call(&format!("SCAN {first}")).await;
    assert_eq!(keys(&again), keys(&lost));
    let mut at = cursor(&again);
    loop {
        let reply = client.call(&format!("SCAN {at}")).await;
        if text(&reply) == "[0 []]" {
            break;
        }
        at = cursor(&reply);
        let refused = client.say(&format!("SCAN {first}")).await;
        assert!(refused.contains("begin again with 0"), "{refused}");
    }
    assert_eq!(client.say(&format!("SCAN {at}")).await, "[0 []]", "the last step");
}

#[tokio::test]
async fn a_scan_does_not_outlive_its_login() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let mut config = cluster_config(mocks.urls(), Limits::default());
    {
        let without_login = start(&config).await;
        let mut client = without_login.client().await;
        fill(&mut client).await;
        assert_eq!(client.say("CONFIG SET requirepass one").await, "OK");
    }
    let file = PasswordFile::new("one", &mut config);
    let mut running = start(&config).await;
    let mut client = running.client().await;
    let first = begin(&mut client).await;
    assert_eq!(client.say("CONFIG SET requirepass two").await, "OK");
    file.write("two");
    // A step is on its way.
    (0..3).for_each(|node| mocks.freeze(node));
    let commands = running.info("gateway_commands_shared").await;
    client.command(&format!("SCAN {first}")).await;
    running.until("gateway_commands_shared", |count| count > commands).await;
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    (0..3).for_each(|node| mocks.thaw(node));
    let next = cursor(&client.reply().await);
    for cursor in [first, next] {
        let refused = client.say(&format!("SCAN {cursor}")).await;
        assert!(refused.contains("begin again with 0"), "{refused}");
    }
    begin(&mut client).await;
}
