//! Certificates: of clients, of the gateway, at a reload, and mistakes in their settings.

use std::fs;
use std::path::Path;

use valkey_rdma_gateway::{Activation, ClientAuth, Config, Gateway, RouteTls, Share};
use valkey_rdma_mock::Mock;
use valkey_rdma_testkit::{Authority, Pair};
use valkey_rdma_transport::tls::ClientTls;

use crate::door::Door;
use crate::support::{Client, mock_with};

fn showing(tls: ClientTls, pair: &Pair) -> ClientTls {
    tls.with_cert(&pair.cert).with_key(&pair.key)
}

/// Whether a client with these settings is served. Its own handshake may end before the gateway has refused it.
async fn is_served(door: &Door, tls: ClientTls) -> bool {
    let Ok(stream) = door.stream(tls).await else { return false };
    let mut client = Client::new(stream);
    client.stream_send(b"PING\r\n").await.is_some() && client.try_reply().await.is_some()
}

#[tokio::test]
async fn clients_need_the_certificates_that_the_gateway_asks_for() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let stranger = Authority::new("Somebody else");
    for (auth, [none, right, wrong, old]) in [
        (Some(ClientAuth::No), [true, true, true, true]),
        (Some(ClientAuth::Optional), [true, true, false, false]),
        (Some(ClientAuth::Required), [false, true, false, false]),
        (None, [false, true, false, false]),
    ] {
        let door = Door::start_with(&url, Share::Auto, |config, issuer| {
            let tls = config.routes[0].tls.as_mut().unwrap();
            (tls.client_ca, tls.client_auth) = (Some(issuer.ca()), auth);
        })
        .await;
        let failed = [none, right, wrong, old].into_iter().filter(|served| !served).count() as u64;
        assert_eq!(is_served(&door, door.trusting()).await, none, "{auth:?}");
        for (pair, served) in [
            (door.issuer.issue(&["app"]), right),
            (stranger.issue(&["app"]), wrong),
            (door.issuer.issue_for_days(&["app"], -9, -2), old),
        ] {
            assert_eq!(is_served(&door, showing(door.trusting(), &pair)).await, served, "{auth:?}");
        }
        door.until("gateway_tls_handshakes_failed", failed).await;
    }
}

#[tokio::test]
async fn a_reload_reads_certificates_again_and_clients_stay() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let mut door = Door::start(&url, Share::Auto).await;
    let next = Authority::new("The next issuer");
    let trusts_next = || ClientTls::default().with_ca(next.ca());
    let mut before = door.client().await;
    assert_eq!(before.say("SET k v").await, "OK");

    let renewed = next.issue(&["127.0.0.1"]);
    fs::copy(&renewed.cert, &door.pair.cert).unwrap();
    let error = door.reload().await.expect_err("the key belongs to the old certificate");
    assert!(error.contains("does not belong to the certificate"), "{error}");
    assert!(is_served(&door, door.trusting()).await && !is_served(&door, trusts_next()).await);

    fs::copy(&renewed.key, &door.pair.key).unwrap();
    door.reload().await.expect("a pair");
    assert!(is_served(&door, trusts_next()).await && !is_served(&door, door.trusting()).await);

    fs::write(&door.pair.key, "rubbish").unwrap();
    let error = door.reload().await.expect_err("no key");
    assert!(error.contains(&door.pair.key.display().to_string()) && !error.contains("rubbish"), "{error}");
    assert!(is_served(&door, trusts_next()).await);
    assert_eq!(before.say("GET k").await, "v", "all the time");

    // Other files, and other clients.
    let pair = door.issuer.issue(&["127.0.0.1"]);
    let client_ca = Some(next.ca());
    door.config.routes[0].tls =
        Some(RouteTls { cert: pair.cert, key: pair.key, client_ca, client_auth: None });
    door.reload().await.expect("a pair");
    assert!(!is_served(&door, door.trusting()).await);
    assert!(is_served(&door, showing(door.trusting(), &next.issue(&["app"]))).await);
    assert_eq!(before.say("GET k").await, "v", "all the time");
}

/// A configuration with these lines in place of the certificate's.
fn config(listen: &str, tls: &str) -> String {
    format!("[[route]]\nlisten = [{listen}]\nserver = \"valkey://127.0.0.1:1\"\n{tls}")
}

#[tokio::test]
async fn a_mistake_is_refused_with_the_file_and_what_to_do() {
    let issuer = Authority::new("An issuer");
    let (pair, other) = (issuer.issue(&["localhost"]), issuer.issue(&["localhost"]));
    let rubbish = issuer.folder().join("rubbish");
    fs::write(&rubbish, "s3cret").unwrap();
    let table = |cert: &Path, key: &Path, more: &str| {
        config("\"tls:127.0.0.1:0\"", &format!("[route.tls]\ncert = {cert:?}\nkey = {key:?}\n{more}"))
    };
    let (cert, key) = (&*pair.cert, &*pair.key);
    for (text, parts) in [
        (config("\"tls:127.0.0.1:0\"", ""), ["tls:127.0.0.1:0 needs a certificate", "--tls-cert"]),
        (config("\"rdmas:127.0.0.1:1\"", ""), ["rdmas:127.0.0.1:1 needs a certificate", "[route.tls]"]),
        (
            table(cert, key, "").replace("tls:127", "tcp:127"),
            ["no listener that uses it", "tls:ADDR:PORT or rdmas:ADDR:PORT"],
        ),
        (
            table(cert, key, "").replace("\"tls:127.0.0.1:0\"", "\"tls:127.0.0.1:7\", \"tcp:127.0.0.1:7\""),
            ["tcp:127.0.0.1:7", "twice"],
        ),
        (config("\"tls:127.0.0.1:0\"", "[route.tls]\ncert = \"a\"\n"), ["line 4", "missing field `key`"]),
        (table(cert, key, "keyfile = \"x\"\n"), ["unknown field `keyfile`", "client_ca"]),
        (
            table(cert, key, "client_auth = \"yes\"\n"),
            ["line 7: client_auth", "not no, optional or required"],
        ),
        (
            table(cert, key, "client_auth = \"required\"\n"),
            ["verify the certificates of clients", "client_ca"],
        ),
        (table(&issuer.folder().join("absent"), key, ""), ["absent", "No such file"]),
        (table(&rubbish, key, ""), ["rubbish", "no certificate in PEM"]),
        (table(cert, &other.key, ""), ["does not belong to the certificate", &*cert.display().to_string()]),
        (table(cert, key, &format!("client_ca = {rubbish:?}\n")), ["file of issuers", "rubbish"]),
        (
            config("\"tcp:127.0.0.1:0\"", "").replace(":1\"", &format!(":1?ca={}\"", rubbish.display())),
            ["server", "ca"],
        ),
        (
            config("\"tcp:127.0.0.1:0\"", "").replace(
                "valkey://127.0.0.1:1",
                &format!("valkeys://:s3cret@127.0.0.1:1?ca={}", rubbish.display()),
            ),
            ["file of issuers", "rubbish"],
        ),
    ] {
        let error = Config::parse(&text).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{part} in: {error}");
        }
        assert!(!error.contains("s3cret"), "{error}");
    }
    assert!(Config::parse(&table(cert, key, &format!("client_ca = {:?}\n", issuer.ca()))).is_ok());
}

#[tokio::test]
async fn a_gateway_does_not_start_without_its_certificates() {
    let issuer = Authority::new("An issuer");
    let pair = issuer.issue(&["localhost"]);
    let text = format!("[route.tls]\ncert = {:?}\nkey = {:?}\n", pair.cert, pair.key);
    let config = Config::parse(&config("\"tls:127.0.0.1:0\"", &text)).unwrap();
    fs::remove_file(&pair.key).unwrap();
    let error = Gateway::start(&config, &Activation::default()).await.err().expect("no key").to_string();
    assert!(error.contains("cannot read the private key") && error.contains("No such file"), "{error}");
}
