//! Streams of the program and Unix sockets are encrypted too, if the endpoint asks for that.

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::UnixListener;
use valkey_rdma_client::transport::AnyStream;
use valkey_rdma_client::transport::tls::TlsAcceptor;
use valkey_rdma_client::{Client, ClientTls, Config, Dialer, Endpoint, Transport};
use valkey_rdma_testkit::Authority;

use crate::server_tls;

/// Takes the login and answers it.
pub(crate) async fn greet(stream: &mut AnyStream) {
    let mut login = Vec::new();
    while !login.ends_with(b"PING\r\n$11\r\nvalkey-rdma\r\n") {
        assert_ne!(stream.read_buf(&mut login).await.expect("a login"), 0);
    }
    stream.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n+PONG\r\n").await.expect("open");
}

/// Encrypts a stream as a server does, answers a login and then one GET.
async fn serve(stream: AnyStream, acceptor: &TlsAcceptor) {
    let mut stream = acceptor.accept(stream).await.expect("encrypted");
    greet(&mut stream).await;
    let mut request = [0; 24];
    stream.read_exact(&mut request[..20]).await.expect("a command");
    stream.write_all(b"$1\r\nv\r\n").await.expect("open");
    let _end = stream.read(&mut request).await;
}

fn parts() -> (Authority, TlsAcceptor, Endpoint) {
    let issuer = Authority::new("Issuer of tests");
    let acceptor = TlsAcceptor::new(server_tls(&issuer.issue(&["cache.example"]))).expect("a good pair");
    let endpoint = Endpoint::new(Transport::Tcp, "cache.example", 6379)
        .with_tls(ClientTls::default().with_ca(issuer.ca()));
    (issuer, acceptor, endpoint)
}

async fn get(client: Client) {
    assert!(client.info().tls.is_some(), "{}", client.info());
    assert_eq!(client.query::<String>(["GET", "k"]).await.expect("a value"), "v");
    client.close().await;
}

#[tokio::test]
async fn a_stream_of_the_program_is_encrypted() {
    let (_issuer, acceptor, endpoint) = parts();
    let (ours, theirs) = duplex(1000);
    let ask = async { get(Client::from_stream(ours, &endpoint).await.expect("connected")).await };
    tokio::join!(ask, serve(AnyStream::Other(Box::new(theirs)), &acceptor));

    let (ours, theirs) = duplex(1000);
    let ours = std::sync::Mutex::new(Some(ours));
    let dialer = move || {
        let stream = ours.lock().expect("no panic").take();
        async { stream.ok_or_else(|| std::io::ErrorKind::ConnectionRefused.into()) }
    };
    let ask = async {
        get(Client::connect_with_dialer(endpoint, &Config::default(), dialer).await.expect("connected"))
            .await;
    };
    tokio::join!(ask, serve(AnyStream::Other(Box::new(theirs)), &acceptor));
}

#[tokio::test]
async fn a_unix_socket_is_encrypted() {
    let (issuer, acceptor, endpoint) = parts();
    let path = issuer.folder().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let dialer = Dialer::at_socket(&path, endpoint, &Config::default()).expect("a good endpoint");
    let accept = async {
        let (stream, _) = listener.accept().await.expect("a client");
        serve(AnyStream::Unix(stream.try_into().expect("a reactor")), &acceptor).await;
    };
    let ask = async { get(dialer.into_client().await.expect("connected")).await };
    tokio::join!(ask, accept);
}
