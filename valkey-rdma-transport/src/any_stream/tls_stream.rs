//! [`TlsStream`]: the bytes of a TLS connection over another stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, CommonState, HandshakeKind, ProtocolVersion, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, empty};
use tokio_rustls::TlsStream as RustlsStream;

use super::AnyStream;
use super::read_ahead::ReadAhead;
use crate::tls::ciphers::iana_name;
use crate::tls::failure::explained_later;
use crate::tls::info::TlsInfo;

/// The byte stream of a TLS connection, past its handshake. Its end is the peer's `close_notify`; a connection that ends without
/// one was cut, which is an error of the kind `UnexpectedEof`. Over RDMA, this side's end is that of both
/// directions: without [`linger`](crate::Config::linger), reads after it return the end.
///
/// The end of a write may wait here until it is flushed, where a stream without TLS has sent it. So flush after the last write.
///
/// Its methods that change the stream below, such as [`driven`](AnyStream::driven), are those of [`AnyStream`].
pub struct TlsStream {
    tls: RustlsStream<ReadAhead>,
    info: Arc<TlsInfo>,
    /// Of a write of which a part may have arrived.
    write_error: Option<io::Error>,
}

impl TlsStream {
    pub(crate) async fn connect(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        stream: AnyStream,
    ) -> io::Result<Self> {
        let tls = tokio_rustls::TlsConnector::from(config).connect(name, ReadAhead::new(stream)).await?;
        Ok(Self::new(tls.into()))
    }

    pub(crate) async fn accept(config: Arc<ServerConfig>, stream: AnyStream) -> io::Result<Self> {
        let tls = tokio_rustls::TlsAcceptor::from(config).accept(ReadAhead::new(stream)).await?;
        Ok(Self::new(tls.into()))
    }

    fn new(tls: RustlsStream<ReadAhead>) -> Self {
        let info = Arc::new(info(tls.get_ref().1));
        Self { tls, info, write_error: None }
    }

    /// What the two sides have agreed on.
    #[must_use]
    pub fn info(&self) -> &Arc<TlsInfo> {
        &self.info
    }

    /// The stream below.
    pub(crate) fn below(&self) -> &AnyStream {
        &self.tls.get_ref().0.stream
    }

    /// The same, to be changed.
    pub(crate) fn below_mut(&mut self) -> &mut AnyStream {
        let (below, _) = self.tls.get_mut();
        &mut below.stream
    }

    /// Replaces the stream below by what `change` makes of it.
    pub(crate) fn change_below<E>(
        &mut self,
        change: impl FnOnce(AnyStream) -> Result<AnyStream, E>,
    ) -> Result<(), E> {
        let below = self.below_mut();
        *below = change(std::mem::replace(below, AnyStream::Other(Box::new(empty()))))?;
        Ok(())
    }

    /// Writes with `write`, `len` bytes at most. rustls takes more than has left when a write fails. The peer may have a part of it, so that is
    /// reported as written, and the error follows. The bytes below are at least as many as those in them.
    fn poll_write_with(
        &mut self,
        len: usize,
        write: impl FnOnce(Pin<&mut RustlsStream<ReadAhead>>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.check_writes()?;
        let before = self.tls.get_ref().0.written;
        match ready!(write(Pin::new(&mut self.tls))) {
            Err(error) => match self.tls.get_ref().0.written.wrapping_sub(before).min(len) {
                0 => Poll::Ready(Err(error)),
                left => {
                    self.write_error = Some(error);
                    Poll::Ready(Ok(left))
                }
            },
            written => Poll::Ready(written),
        }
    }

    /// The error of the write before, if that was reported as written.
    fn check_writes(&mut self) -> io::Result<()> {
        self.write_error.take().map_or(Ok(()), Err)
    }

    /// What a reader gets instead of an error of rustls. Over TCP, the peer can announce its end after ours. A device has no half-close:
    /// once this side has ended the connection, the peer cannot. Only then, reads return an end and not a cut. With
    /// [`linger`](crate::Config::linger), the peer has the time, and a third party could shorten its last replies.
    fn end_of_reads(&self, error: io::Error) -> io::Result<()> {
        match self.below() {
            AnyStream::Device(stream)
                if error.kind() == io::ErrorKind::UnexpectedEof && stream.ended_at_once() =>
            {
                Ok(())
            }
            _ => Err(explained_later(error)),
        }
    }

    /// Reads what has arrived, whatever the reactor knows of it. `WouldBlock` if there are no bytes of the peer's program.
    pub(crate) fn read_now(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        use io::Read;

        macro_rules! read_now {
            ($stream:expr) => {{
                let (below, session) = $stream.get_mut();
                let mut plain = [0; 16 * 1024];
                loop {
                    match session.reader().read(&mut plain) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return self.end_of_reads(error).map(|()| 0),
                        Ok(read) => {
                            buffer.extend_from_slice(&plain[..read]);
                            return Ok(read);
                        }
                    }
                    session.read_tls(&mut below.now())?;
                    session.process_new_packets().map_err(|error| {
                        explained_later(io::Error::new(io::ErrorKind::InvalidData, error))
                    })?;
                }
            }};
        }
        match &mut self.tls {
            RustlsStream::Client(stream) => read_now!(stream),
            RustlsStream::Server(stream) => read_now!(stream),
        }
    }
}

fn info(session: &CommonState) -> TlsInfo {
    let certificates = session.peer_certificates().unwrap_or_default();
    TlsInfo {
        version: match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
            _ => "TLS 1.2",
        },
        cipher: session.negotiated_cipher_suite().map_or("", iana_name),
        resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        peer_certificates: certificates.iter().map(|certificate| certificate.to_vec()).collect(),
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.tls).poll_read(cx, buf));
        Poll::Ready(read.or_else(|error| self.end_of_reads(error)))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(buf.len(), |tls| tls.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.poll_write_with(len, |tls| tls.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_writes()?;
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_writes()?;
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}
