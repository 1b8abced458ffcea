//! Scripts and functions.

use valkey_rdma_client::Script;

use crate::target::target;

#[tokio::test]
#[ignore = "the mock has no Lua; needs a real server: VALKEY_RDMA_TEST_SERVER"]
async fn a_script_runs_by_its_digest_and_survives_being_forgotten() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("n");
    let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    for expected in [5, 10] {
        let sum: i64 = script.call(&client, [&key], ["5"]).await.expect("runs").convert().expect("a number");
        assert_eq!(sum, expected);
    }
    client.command(["SCRIPT", "FLUSH"]).await.expect("forgotten");
    let sum: i64 = script.call(&client, [&key], ["5"]).await.expect("runs").convert().expect("a number");
    assert_eq!(sum, 15);
    let failed = script.call(&client, [&key], ["five"]).await.expect_err("not a number");
    assert!(failed.server().is_some());
}

#[tokio::test]
#[ignore = "the mock has no Lua; needs a real server: VALKEY_RDMA_TEST_SERVER"]
async fn a_function_of_a_loaded_library_is_called() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("n");
    let name = format!("add{}", std::process::id());
    let library = format!(
        "#!lua name=lib{name}\nredis.register_function('{name}', function(keys, args)\n\
         return redis.call('INCRBY', keys[1], args[1]) end)\n\
         redis.register_function{{function_name='{name}_get', callback=function(keys, args)\n\
         return redis.call('GET', keys[1]) end, flags={{'no-writes'}}}}"
    );
    client.command(["FUNCTION", "LOAD", "REPLACE", &library]).await.expect("loaded");
    let sum: i64 = Script::function(name.clone())
        .call(&client, [&key], ["5"])
        .await
        .expect("runs")
        .convert()
        .expect("a number");
    assert_eq!(sum, 5);
    let get = Script::function(format!("{name}_get")).read_only();
    let sum: i64 = get.call(&client, [&key], [""; 0]).await.expect("runs").convert().expect("a number");
    assert_eq!(sum, 5);
    client.command(["FUNCTION", "DELETE", &format!("lib{name}")]).await.expect("deleted");
}
