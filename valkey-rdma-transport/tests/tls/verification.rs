//! Who is trusted, and what the errors say.

use std::fs;

use tokio::io::AsyncReadExt;
use valkey_rdma_testkit::Authority;
use valkey_rdma_transport::tls::{
    ClientAuth, ClientTls, ServerTls, TlsAcceptor, TlsConnector, TlsError, Verify,
};

use crate::over_each;
use crate::pair::{Carrier, Server, client};

/// The error that a client gets, with these settings beside the issuer.
async fn refused(server: &Server, change: impl FnOnce(ClientTls) -> ClientTls) -> TlsError {
    let tls = TlsConnector::new(change(ClientTls::default().with_ca(server.authority.ca())));
    server.try_connect(Carrier::Tcp, &tls).await.0.unwrap_err()
}

#[tokio::test]
async fn the_name_is_compared_unless_told_otherwise() {
    let server = Server::with(Authority::new("tests"), &["store.example", "10.0.0.7"], |tls| tls);
    let error = refused(&server, |tls| tls).await;
    assert_eq!(
        error.to_string(),
        "the server's certificate is for store.example, 10.0.0.7, not for localhost: connect to that name, or give it with server_name=NAME"
    );
    let ca = ClientTls::default().with_ca(server.authority.ca());
    for tls in [
        ca.clone().with_server_name("store.example"),
        ca.clone().with_server_name("10.0.0.7"),
        ca.clone().with_verify(Verify::Ca),
    ] {
        server.connect(Carrier::Tcp, &TlsConnector::new(tls)).await;
    }
    let error = refused(&server, |tls| tls.with_server_name("not a name")).await;
    assert!(matches!(error, TlsError::ServerName { .. }), "{error}");
}

#[tokio::test]
async fn a_certificate_without_a_name_is_named_so() {
    let server = Server::with(Authority::new("tests"), &[], |tls| tls);
    let error = refused(&server, |tls| tls).await.to_string();
    assert!(error.contains("no name: give the server one for localhost (subjectAltName)"), "{error}");
}

#[tokio::test]
async fn the_issuer_is_verified_unless_told_otherwise() {
    let server = Server::new();
    let stranger = Authority::new("stranger");
    for verify in [Verify::Full, Verify::Ca] {
        let error = refused(&server, |tls| tls.with_ca(stranger.ca()).with_verify(verify)).await;
        assert!(matches!(error, TlsError::UnknownIssuer), "{error}");
        assert!(error.to_string().contains("ca=FILE"), "{error}");
    }
    let renewed = Authority::new("tests");
    let error = refused(&server, |tls| tls.with_ca(renewed.ca())).await.to_string();
    assert!(error.contains("present certificate with ca=FILE"), "{error}");
    let none = TlsConnector::new(ClientTls::default().with_verify(Verify::None));
    server.connect(Carrier::Tcp, &none).await;
}

#[tokio::test]
async fn the_dates_are_verified_unless_told_otherwise() {
    for (from, to, text) in [(-9, -3, "expired 3 days ago"), (2, 9, "not valid yet")] {
        let authority = Authority::new("tests");
        let pair = authority.issue_for_days(&["localhost"], from, to);
        let acceptor = TlsAcceptor::new(ServerTls::new(pair.cert, pair.key)).unwrap();
        let server = Server { authority, acceptor };
        for verify in [Verify::Full, Verify::Ca] {
            let error = refused(&server, |tls| tls.with_verify(verify)).await.to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}

#[tokio::test]
async fn clients_show_certificates_where_they_must() {
    over_each(|carrier| async move {
        let (clients, stranger) = (Authority::new("clients"), Authority::new("stranger"));
        let (good, wrong) = (clients.issue(&["app"]), stranger.issue(&["app"]));
        let old = clients.issue_for_days(&["app"], -9, -3);
        let ca = clients.ca();
        let plain = |server: &Server| ClientTls::default().with_ca(server.authority.ca());
        for (auth, missing_is_fine) in [(None, false), (Some(ClientAuth::Optional), true)] {
            let server = Server::with(Authority::new("tests"), &["localhost"], |tls| {
                let tls = tls.with_client_ca(&ca);
                match auth {
                    None => tls,
                    Some(auth) => tls.with_client_auth(auth),
                }
            });
            let shows = |pair: &valkey_rdma_testkit::Pair| {
                TlsConnector::new(plain(&server).with_cert(&pair.cert).with_key(&pair.key))
            };
            let (_, accepted) = server.connect(carrier, &shows(&good)).await;
            assert_eq!(accepted.tls().unwrap().peer_certificates.len(), 1);
            for (pair, reason) in [(&wrong, "client_ca does not have"), (&old, "renew it on the client")] {
                let (_, accepted) = server.try_connect(carrier, &shows(pair)).await;
                let error = accepted.unwrap_err().to_string();
                assert!(error.contains("the client's") && error.contains(reason), "{carrier:?}: {error}");
                let error = refusal(&server, carrier, &shows(pair)).await.unwrap();
                assert!(matches!(error, TlsError::CertificateRefused { .. }), "{carrier:?}: {error}");
            }
            let error = refusal(&server, carrier, &TlsConnector::new(plain(&server))).await;
            match missing_is_fine {
                true => assert!(error.is_none()),
                false => assert!(matches!(error, Some(TlsError::CertificateRequired))),
            }
        }
    })
    .await;
}

/// The error that the client gets, if the server does not accept it. In TLS 1.3 that comes after the client's own handshake.
async fn refusal(server: &Server, carrier: Carrier, tls: &TlsConnector) -> Option<TlsError> {
    let (client, accepted) = server.try_connect(carrier, tls).await;
    let mut client = match client {
        Ok(client) => client,
        Err(error) => return Some(error),
    };
    let Err(_) = accepted else { return None };
    let error = client.read_to_end(&mut Vec::new()).await.unwrap_err();
    Some(error.get_ref().unwrap().downcast_ref::<TlsError>().unwrap_or_else(|| panic!("{error:?}")).clone())
}

#[test]
fn each_bad_file_is_named() {
    let authority = Authority::new("tests");
    let (pair, other) = (authority.issue(&["localhost"]), authority.issue(&["localhost"]));
    let file = |name: &str, content: &[u8]| {
        let path = authority.folder().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let cut = fs::read(&pair.cert).unwrap();
    let cases = [
        (file("empty.pem", b""), "empty.pem cannot be used: it has no certificate in PEM: it is empty"),
        (file("text.pem", b"hello\n"), "text.pem cannot be used: it has no certificate in PEM"),
        (
            file("der.crt", &[0x30, 0x82, 1, 2]),
            "der.crt cannot be used: it has no certificate in PEM: it may be DER",
        ),
        (file("cut.pem", &cut[..cut.len() - 40]), "cut.pem cannot be used: its PEM is damaged"),
        (pair.key.clone(), "but a private key"),
        (authority.folder().to_owned(), "it is not a file"),
        (authority.folder().join("none.pem"), "none.pem"),
    ];
    for (path, text) in &cases {
        for error in [
            TlsConnector::new(ClientTls::default().with_ca(path)).check().unwrap_err(),
            TlsConnector::new(
                ClientTls::default().with_ca(authority.ca()).with_cert(path).with_key(&pair.key),
            )
            .check()
            .unwrap_err(),
            TlsAcceptor::new(ServerTls::new(path, &pair.key)).unwrap_err(),
            TlsAcceptor::new(ServerTls::new(&pair.cert, &pair.key).with_client_ca(path)).unwrap_err(),
        ] {
            let shown = chain(&error);
            assert!(shown.contains(text), "{}: {shown}", path.display());
        }
    }
    let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted_by_ec = b"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n";
    let rubbish = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0IHNlY3JldA==\n-----END PRIVATE KEY-----\n";
    for (path, text) in [
        (file("encrypted.key", encrypted), "it is encrypted"),
        (file("encrypted-by-ec.key", encrypted_by_ec), "it is encrypted"),
        (file("rubbish.key", rubbish), "not a key that ring can use: RSA of 2048 to 4096 bits, ECDSA"),
        (
            file("damaged.key", b"-----BEGIN PRIVATE KEY-----\nsecret!\n-----END PRIVATE KEY-----\n"),
            "its PEM is damaged",
        ),
        (other.key.clone(), "does not belong to the certificate"),
        (pair.cert.clone(), "no private key in PEM, but a certificate"),
    ] {
        let shown = chain(&TlsAcceptor::new(ServerTls::new(&pair.cert, &path)).unwrap_err());
        assert!(shown.contains(text), "{}: {shown}", path.display());
        assert!(!shown.contains("secret") && !shown.contains("c2Vj"), "{shown}");
    }
}

#[test]
fn halves_of_settings_are_refused() {
    let authority = Authority::new("tests");
    let pair = authority.issue(&["localhost"]);
    let ca = || ClientTls::default().with_ca(authority.ca());
    for half in [ca().with_cert(&pair.cert), ca().with_key(&pair.key)] {
        assert!(matches!(TlsConnector::new(half).check(), Err(TlsError::HalfOfAPair)));
    }
    for auth in [ClientAuth::Optional, ClientAuth::Required] {
        let server = ServerTls::new(&pair.cert, &pair.key).with_client_auth(auth);
        assert!(matches!(TlsAcceptor::new(server), Err(TlsError::NoClientCa)));
    }
    let error = TlsConnector::new(ca().with_ciphers("RC4-MD5")).check().unwrap_err().to_string();
    assert!(error.contains("\"RC4-MD5\"") && error.contains("ECDHE-RSA-AES128-GCM-SHA256"), "{error}");
}

#[tokio::test]
async fn a_client_can_limit_the_suites() {
    let server = Server::new();
    let tls =
        ClientTls::default().with_ca(server.authority.ca()).with_ciphersuites("TLS_CHACHA20_POLY1305_SHA256");
    let (client, _) = server.connect(Carrier::Tcp, &TlsConnector::new(tls)).await;
    assert_eq!(client.tls().unwrap().cipher, "TLS_CHACHA20_POLY1305_SHA256");
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// The issuer's own certificate is the most common mistake of people who make their own.
#[tokio::test]
async fn an_issuer_that_serves_with_its_own_certificate_is_named_so() {
    let server = Server::new();
    let _ = client(&server);
    let own = Authority::new("own");
    let acceptor = TlsAcceptor::new(ServerTls::new(own.ca(), own.folder().join("ca.key"))).unwrap();
    let server = Server { authority: own, acceptor };
    let error = refused(&server, |tls| tls).await.to_string();
    assert!(error.contains("CA:TRUE"), "{error}");
}
