use super::*;
use crate::config::Config;
use crate::link::tests::pair;

#[tokio::test(start_paused = true)]
async fn a_call_has_the_limit_and_the_leave_that_it_was_given() {
    let (client, door, mut peer) = pair(&Config::default()).await;
    let script = Script::new("return 1").idempotent().timeout(Duration::from_secs(60));
    let none: [&str; 0] = [];
    let serve = async {
        peer.expect("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$8\r\nreturn 1\r\n").await;
        peer.say(b"$2\r\nab\r\n").await;
        let call = "*3\r\n$7\r\nEVALSHA\r\n$2\r\nab\r\n$1\r\n0\r\n";
        peer.expect(call).await;
        drop(peer);
        let mut peer = door.admit();
        peer.greet_again().await;
        peer.expect(call).await;
        peer
    };
    let begin = tokio::time::Instant::now();
    let (outcome, _open) = tokio::join!(script.call(&client, none, none), serve);
    assert!(matches!(outcome, Err(Error::TimedOut(_))), "{outcome:?}");
    assert_eq!(begin.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn a_call_takes_keys_and_arguments_of_different_types_or_none() {
    let (client, _door, mut peer) = pair(&Config::default()).await;
    let (script, function) = (Script::new("x"), Script::function("f"));
    let serve = async {
        peer.expect("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$1\r\nx\r\n").await;
        peer.say(b"$2\r\nab\r\n").await;
        peer.expect("*3\r\n$7\r\nEVALSHA\r\n$2\r\nab\r\n$1\r\n0\r\n").await;
        peer.say(b"+no number\r\n").await;
        peer.expect("*6\r\n$5\r\nFCALL\r\n$1\r\nf\r\n$1\r\n1\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\n60\r\n").await;
        peer.say(b":7\r\n").await;
    };
    let ask = async {
        let none = script.invoke().query::<i64>(&client).await.expect_err("a status");
        (none.to_string(), function.invoke().key("k").arg("v").arg(60).query::<i64>(&client).await)
    };
    let ((none, some), ()) = tokio::join!(ask, serve);
    assert_eq!(none, "EVALSHA: expected an integer of 64 bits, got a status of 9 bytes");
    assert_eq!(some.expect("a number"), 7);
}

#[tokio::test]
async fn calls_that_only_read_are_sent_as_such() {
    let (client, _door, mut peer) = pair(&Config::default()).await;
    let (script, function) = (Script::new("x").read_only(), Script::function("f").read_only());
    let serve = async {
        peer.expect("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$1\r\nx\r\n").await;
        peer.say(b"$2\r\nab\r\n").await;
        peer.expect("*3\r\n$10\r\nEVALSHA_RO\r\n$2\r\nab\r\n$1\r\n0\r\n").await;
        peer.say(b"-NOSCRIPT No matching script.\r\n").await;
        peer.expect("*3\r\n$7\r\nEVAL_RO\r\n$1\r\nx\r\n$1\r\n0\r\n").await;
        peer.say(b":1\r\n").await;
        peer.expect("*3\r\n$8\r\nFCALL_RO\r\n$1\r\nf\r\n$1\r\n0\r\n").await;
        peer.say(b":2\r\n").await;
    };
    let ask = async {
        let first = script.invoke().query::<i64>(&client).await;
        (first.expect("a number"), function.invoke().query::<i64>(&client).await.expect("a number"))
    };
    assert_eq!(tokio::join!(ask, serve).0, (1, 2));
}

#[tokio::test]
async fn a_user_who_may_not_load_scripts_sends_their_text() {
    let (client, _door, mut peer) = pair(&Config::default()).await;
    let (script, reader) = (Script::new("x"), Script::new("y").read_only());
    let serve = async {
        peer.expect("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$1\r\nx\r\n").await;
        peer.say(b"-NOPERM no\r\n").await;
        for _ in 0..2 {
            peer.expect("*3\r\n$4\r\nEVAL\r\n$1\r\nx\r\n$1\r\n0\r\n").await;
            peer.say(b":1\r\n").await;
        }
        peer.expect("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$1\r\ny\r\n").await;
        peer.say(b"-NOPERM no\r\n").await;
        peer.expect("*3\r\n$7\r\nEVAL_RO\r\n$1\r\ny\r\n$1\r\n0\r\n").await;
        peer.say(b"-NOPERM no scripts at all\r\n").await;
        peer.expect("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$1\r\nz\r\n").await;
        peer.say(b"-ERR Error compiling script\r\n").await;
    };
    let ask = async {
        for _ in 0..2 {
            assert_eq!(script.invoke().query::<i64>(&client).await.expect("run"), 1);
        }
        let error = reader.invoke().query::<i64>(&client).await.expect_err("no right");
        assert!(error.to_string().contains("no scripts at all"), "{error}");
        Script::new("z").invoke().query::<i64>(&client).await.expect_err("no script");
    };
    tokio::join!(ask, serve);
}

#[tokio::test]
async fn debug_output_holds_neither_keys_nor_arguments() {
    let (client, _door, _peer) = pair(&Config::default()).await;
    let script = Script::function("f");
    let invocation = script.invoke().key("key:hush").arg("hush").arg(60);
    let text = format!("{invocation:?}");
    assert!(text.contains("keys: 1, args: 2") && !text.contains("hush"), "{text}");
    let text = format!("{:?}", client.scan_set("key:hush"));
    assert!(text.contains("SSCAN") && !text.contains("hush"), "{text}");
}
