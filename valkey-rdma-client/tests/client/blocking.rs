//! The client without async.

use std::thread;

use valkey_rdma_client::blocking::Client;
use valkey_rdma_client::{Command, Error};

use crate::target::target;

#[test]
fn threads_share_a_connection_without_a_runtime_of_their_own() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime for the mock");
    let target = runtime.block_on(target());
    let client = Client::connect(target.url.as_str()).expect("connected");
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let (client, key) = (client.clone(), target.key(&n.to_string()));
            thread::spawn(move || {
                for _ in 0..100 {
                    client.command(["INCR", &key]).expect("a reply");
                }
                client.command(["GET", &key]).expect("a reply").convert::<i64>().expect("a number")
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), 100);
    }
    let replies = client.pipeline([Command::new("PING"), Command::new("NOSUCHCOMMAND")]).expect("replies");
    assert!(replies[0].is_ok() && replies[1].is_err());
    let key = target.key("0");
    let mut buffer = [0; 8];
    assert_eq!(client.get_into(&key, &mut buffer).expect("a reply"), Some(3));
    assert_eq!(&buffer[..3], b"100");
    client.close().expect("closed");

    let inside = runtime.block_on(async { client.command(["PING"]) });
    assert!(matches!(inside, Err(Error::Refused(_))), "{inside:?}");
    runtime.block_on(async { drop(client) });
}
