//! Encrypted connections in use: cancelled calls, resumed sessions, and how they end.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::yield_now;
use valkey_rdma_client::transport::AnyStream;
use valkey_rdma_client::transport::tls::TlsAcceptor;
use valkey_rdma_client::{Client, Config, Error, LostCause};

use crate::streams::greet;
use crate::{Encrypted, connect, server_tls};

#[tokio::test]
async fn a_thousand_cancelled_calls_shift_no_reply() {
    let encrypted = Encrypted::start().await;
    for url in encrypted.urls("") {
        let client = connect(&url).await.expect("connected");
        for n in 0..1000 {
            let text = format!("cancelled {n}");
            tokio::select! {
                biased;
                _ = client.command(["ECHO", &text]) => {}
                () = yield_now() => {}
            }
            if n % 10 == 0 {
                let text = format!("kept {n}");
                assert_eq!(client.query::<String>(["ECHO", &text]).await.expect("a reply"), text);
            }
        }
    }
}

#[tokio::test]
async fn later_connections_and_those_after_a_loss_continue_the_session() {
    let encrypted = Encrypted::start().await;
    for url in encrypted.urls("") {
        let client = connect(&url).await.expect("connected");
        let resumed = |client: &Client| client.info().tls.as_ref().map(|tls| tls.resumed);
        assert_eq!(resumed(&client), Some(false));
        client.command(["PING"]).await.expect("a reply");
        let dedicated = client.dedicated().await.expect("connected");
        assert_eq!(dedicated.info().tls.as_ref().map(|tls| tls.resumed), Some(true), "{url}");
        let drops = encrypted.mock.on("INCR").drop_connection();
        client.command(["INCR", "n"]).await.expect_err("lost");
        client.command(["PING"]).await.expect("a reply");
        assert_eq!(resumed(&client), Some(true), "{url}");
        drop(drops);
    }
}

/// TLS announces the end of a connection. One that ends without was cut.
#[tokio::test]
async fn a_connection_that_was_cut_is_told_from_one_that_was_closed() {
    let encrypted = Encrypted::start().await;
    let acceptor =
        TlsAcceptor::new(server_tls(&encrypted.issuer.issue(&["127.0.0.1"]))).expect("a good pair");
    for closes in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let url = format!("valkeys://{address}?ca={}", encrypted.issuer.ca().display());
        let serve = async {
            let stream = AnyStream::Tcp(listener.accept().await.expect("a client").0);
            let mut stream = acceptor.accept(stream).await.expect("encrypted");
            greet(&mut stream).await;
            // Its command is read, so that the system does not reset the connection.
            let _read = stream.read(&mut [0; 512]).await.expect("a command");
            if closes {
                stream.shutdown().await.expect("open");
            }
        };
        let ask = async {
            let client = Client::connect_with(url.as_str(), &Config::default().reconnect(None)).await;
            client.expect("connected").command(["GET", "k"]).await.expect_err("lost")
        };
        let (error, ()) = tokio::join!(ask, serve);
        let Error::Lost(lost) = &error else { panic!("{error}") };
        match lost.cause() {
            LostCause::PeerClosed if closes => {}
            LostCause::Io(_) if !closes => {
                assert!(error.to_string().contains("the connection was cut"), "{error}");
            }
            _ => panic!("closed: {closes}: {error:#}"),
        }
    }
}
