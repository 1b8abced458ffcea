//! The two ends of a TLS connection, over each carrier.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use valkey_rdma_testkit::Authority;
use valkey_rdma_transport::tls::{ClientTls, ServerTls, TlsAcceptor, TlsConnector, TlsError};
use valkey_rdma_transport::{AnyStream, Config, DeviceKind, FeatureSet, Listener, Stream};

/// What carries the encrypted bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Carrier {
    Tcp,
    Emulated,
    Unix,
}

/// A server called `localhost`, and who has issued its certificate.
pub(crate) struct Server {
    pub(crate) authority: Authority,
    pub(crate) acceptor: TlsAcceptor,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(Authority::new("tests"), &["localhost", "127.0.0.1"], |tls| tls)
    }

    pub(crate) fn with(
        authority: Authority,
        names: &[&str],
        change: impl FnOnce(ServerTls) -> ServerTls,
    ) -> Self {
        let pair = authority.issue(names);
        let acceptor = TlsAcceptor::new(change(ServerTls::new(pair.cert, pair.key))).unwrap();
        Self { authority, acceptor }
    }

    /// Both ends, past their handshakes.
    pub(crate) async fn connect(&self, carrier: Carrier, tls: &TlsConnector) -> (AnyStream, AnyStream) {
        let (client, server) = self.try_connect(carrier, tls).await;
        (client.unwrap(), server.unwrap())
    }

    /// What the handshakes of both ends return.
    pub(crate) async fn try_connect(
        &self,
        carrier: Carrier,
        tls: &TlsConnector,
    ) -> (Result<AnyStream, TlsError>, Result<AnyStream, TlsError>) {
        let (client, server) = plain(carrier).await;
        tokio::join!(tls.connect("localhost", client), self.acceptor.accept(server))
    }

    /// As [`connect`](Self::connect), over the two ends of another stream.
    pub(crate) async fn connect_over(
        &self,
        (client, server): (AnyStream, AnyStream),
        tls: &TlsConnector,
    ) -> (AnyStream, AnyStream) {
        let (client, server) = tokio::join!(tls.connect("localhost", client), self.acceptor.accept(server));
        (client.unwrap(), server.unwrap())
    }
}

/// A client that trusts the server's issuer.
pub(crate) fn client(server: &Server) -> TlsConnector {
    TlsConnector::new(ClientTls::default().with_ca(server.authority.ca()))
}

/// Both ends of a connection that agrees on TLS and has not begun with it.
pub(crate) async fn plain(carrier: Carrier) -> (AnyStream, AnyStream) {
    match carrier {
        Carrier::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let (client, server) = tokio::join!(TcpStream::connect(addr), listener.accept());
            (AnyStream::Tcp(client.unwrap()), AnyStream::Tcp(server.unwrap().0))
        }
        Carrier::Unix => {
            let (client, server) = UnixStream::pair().unwrap();
            (AnyStream::Unix(client.try_into().unwrap()), AnyStream::Unix(server.try_into().unwrap()))
        }
        Carrier::Emulated => {
            let (client, mut server) = device(
                Config::default().requires(FeatureSet::TLS),
                Config::default().offers(FeatureSet::TLS),
            )
            .await;
            assert_eq!(server.agreed().await.unwrap(), FeatureSet::TLS);
            (AnyStream::Device(client), AnyStream::Device(server))
        }
    }
}

/// Both ends of a connection over the emulated device.
pub(crate) async fn device(client: Config, server: Config) -> (Stream, Stream) {
    let any = "127.0.0.1:0".parse().unwrap();
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &server).await.unwrap();
    let addr = listener.local_addr();
    let (client, server) =
        tokio::join!(Stream::connect(DeviceKind::Emulated, addr, &client), listener.accept());
    (client.unwrap(), server.unwrap())
}

/// What has passed through one end of a stream.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<u8>>>);

impl Seen {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

/// One end of a stream in memory, which keeps what passes.
pub(crate) struct Tap {
    inner: DuplexStream,
    seen: Seen,
}

impl Tap {
    /// What is seen, and both ends.
    pub(crate) fn pair() -> (Seen, (AnyStream, AnyStream)) {
        let (client, server) = duplex(64 * 1024);
        let seen = Seen::default();
        let tap = Self { inner: client, seen: seen.clone() };
        (seen, (AnyStream::Other(Box::new(tap)), AnyStream::Other(Box::new(server))))
    }
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.seen.0.lock().unwrap().extend_from_slice(&buf.filled()[before..]);
        read
    }
}

impl AsyncWrite for Tap {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        if let Poll::Ready(Ok(len)) = written {
            self.seen.0.lock().unwrap().extend_from_slice(&buf[..len]);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
