//! Which certificates are taken, and what the error says of others.

use std::fs;

use valkey_rdma_client::{Client, TlsError};
use valkey_rdma_mock::Mock;
use valkey_rdma_testkit::{Authority, Pair};

use crate::{Encrypted, connect, refusal, server_tls, url_of};

#[tokio::test]
async fn a_server_with_a_good_certificate_is_used_and_the_client_says_how() {
    let encrypted = Encrypted::start().await;
    for url in encrypted.urls("") {
        let client = connect(&url).await.expect("connected");
        assert_eq!(client.query::<String>(["PING"]).await.expect("a reply"), "PONG");
        let info = client.info();
        let tls = info.tls.as_ref().expect("encrypted");
        assert_eq!((tls.version, tls.resumed, tls.peer_certificates.len()), ("TLS 1.3", false, 1));
        assert!(info.to_string().contains(", TLS 1.3 TLS_"), "{info}");
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_unless_the_url_allows_it() {
    let encrypted =
        Encrypted::start_with(Mock::new(), |issuer| server_tls(&issuer.issue(&["valkey.example"]))).await;
    for (url, transport) in encrypted.urls("").iter().zip(["tcp", "emulated"]) {
        let (error, text) = refusal(url).await;
        assert!(matches!(error, TlsError::WrongName { .. }), "{text}");
        assert!(text.starts_with("cannot connect to 127.0.0.1:"), "{text}");
        let rest = format!(
            " over {transport} with TLS: the server's certificate is for valkey.example, not for 127.0.0.1: connect to that name, \
             or give it with server_name=NAME"
        );
        assert!(text.ends_with(&rest), "{text}");
    }
    for options in ["&server_name=valkey.example", "&verify=ca", "&verify=none"] {
        for url in encrypted.urls(options) {
            connect(&url).await.expect(&url);
        }
    }
}

#[tokio::test]
async fn an_expired_certificate_is_refused_unless_nothing_is_verified() {
    let encrypted = Encrypted::start_with(Mock::new(), |issuer| {
        server_tls(&issuer.issue_for_days(&["127.0.0.1"], -10, -2))
    })
    .await;
    for options in ["", "&verify=ca"] {
        for url in encrypted.urls(options) {
            let (error, text) = refusal(&url).await;
            assert!(matches!(error, TlsError::Expired { days: Some(1 | 2) }), "{text}");
        }
    }
    for url in encrypted.urls("&verify=none") {
        connect(&url).await.expect(&url);
    }
}

#[tokio::test]
async fn an_unknown_issuer_is_refused_unless_nothing_is_verified() {
    let (encrypted, other) = (Encrypted::start().await, Authority::new("Another issuer"));
    for url in [encrypted.mock.tcp_url(), encrypted.mock.url()] {
        for options in ["", "&verify=ca"] {
            let (error, text) = refusal(&url_of(url, &other.ca(), options)).await;
            assert!(matches!(error, TlsError::UnknownIssuer) && text.contains("ca=FILE"), "{text}");
        }
        connect(&url_of(url, &other.ca(), "&verify=none")).await.expect(url);
    }
}

/// In TLS 1.3 the server refuses a certificate when the client has completed the handshake, and sent its login.
#[tokio::test]
async fn a_server_that_requires_certificates_of_clients_gets_one_or_the_error_says_so() {
    let encrypted = Encrypted::start_with(Mock::new(), |issuer| {
        server_tls(&issuer.issue(&["127.0.0.1"])).with_client_ca(issuer.ca())
    })
    .await;
    let good = encrypted.issuer.issue(&["app"]);
    let expired = encrypted.issuer.issue_for_days(&["app"], -10, -2);
    let others = Authority::new("Another issuer");
    let strange = others.issue(&["app"]);
    let options = |pair: &Pair| format!("&cert={}&key={}", pair.cert.display(), pair.key.display());
    for resp in ["", "&protocol=resp2"] {
        for url in encrypted.urls(resp) {
            connect(&(url.clone() + &options(&good))).await.expect("a good certificate");
            let (error, text) = refusal(&url).await;
            assert!(matches!(error, TlsError::CertificateRequired), "{text}");
            assert!(text.ends_with("give one with cert=FILE and key=FILE"), "{text}");
            for pair in [&expired, &strange] {
                let (error, text) = refusal(&(url.clone() + &options(pair))).await;
                assert!(matches!(error, TlsError::CertificateRefused { .. }), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn the_files_of_a_later_connection_are_those_that_are_there_then() {
    let mut encrypted = Encrypted::start().await;
    let copy = encrypted.issuer.folder().join("trusted.crt");
    fs::copy(encrypted.issuer.ca(), &copy).expect("copied");
    let [url, _] = encrypted.urls("");
    let url = url.replace("ca.crt", "trusted.crt");
    let client = connect(&url).await.expect("connected");
    let other = Authority::new("Another issuer");
    fs::copy(other.ca(), &copy).expect("copied");
    let (error, text) = refusal(&url).await;
    assert!(matches!(error, TlsError::UnknownIssuer), "{text}");
    // The connection that exists goes on. The next one reads the file again.
    assert_eq!(client.query::<String>(["PING"]).await.expect("a reply"), "PONG");
    fs::write(&copy, "no certificate").expect("written");
    let (error, text) = refusal(&url).await;
    assert!(matches!(error, TlsError::BadFile { .. }) && text.contains("trusted.crt"), "{text}");
    fs::copy(encrypted.issuer.ca(), &copy).expect("copied");
    encrypted.mock.kill().await;
    encrypted.mock.restart().await.expect("its ports are free");
    assert_eq!(client.query::<String>(["PING"]).await.expect("a reply"), "PONG");
}

/// No text has the key, or a password.
#[tokio::test]
async fn no_error_and_no_debug_text_has_a_secret() {
    let encrypted = Encrypted::start_with(Mock::new().requirepass("s3cret"), |issuer| {
        server_tls(&issuer.issue(&["127.0.0.1"]))
    })
    .await;
    let key = encrypted.issuer.folder().join("broken.key");
    let cert = encrypted.issuer.issue(&["app"]).cert;
    let body = "MIGHAgEAMBMGByqGSM49";
    fs::write(&key, format!("-----BEGIN PRIVATE KEY-----\n{body}!\n-----END PRIVATE KEY-----\n"))
        .expect("written");
    for url in encrypted.urls("") {
        let url = url.replace("://", "://app:s3cret@");
        let url = format!("{url}&cert={}&key={}", cert.display(), key.display());
        let endpoint: valkey_rdma_client::Endpoint = url.parse().expect("a good URL");
        let error = Client::connect(endpoint.clone()).await.expect_err("a broken key");
        for text in [format!("{error} {error:#} {error:?}"), format!("{endpoint} {endpoint:?}")] {
            assert!(!text.contains("s3cret") && !text.contains(body), "{text}");
        }
        assert!(error.to_string().contains("broken.key"), "{error}");
    }
}
