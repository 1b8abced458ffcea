//! [`Source`] and [`Sink`]: the value of a key at the server, read and written piece by piece, on a connection that no other client uses meanwhile.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use valkey_rdma_client::{Error, ValueReader, ValueWriter};
use valkey_rdma_resp::{Output, integer, put_header};

use crate::command::class::Class;
use crate::command::words::encode;
use crate::upstream::private::Private;

/// Why a value has no end.
#[derive(Debug)]
pub(super) enum Lost {
    /// The private connection, for this reason.
    Server(String),
    /// What the library says of a node.
    Node(Box<Error>),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(cause) => f.write_str(cause),
            Self::Node(error) => error.fmt(f),
        }
    }
}

impl From<String> for Lost {
    fn from(cause: String) -> Self {
        Self::Server(cause)
    }
}

impl From<Error> for Lost {
    fn from(error: Error) -> Self {
        Self::Node(error.into())
    }
}

/// The reply to GET.
pub(super) enum Found {
    /// A string of this length. What has arrived of it follows.
    Value(usize, Output),
    /// Anything else, as the server has sent it: null, or an error.
    Other(Bytes),
}

/// Sends GET, and takes the start of its reply.
pub(super) async fn get(private: &mut Private, key: &[u8]) -> Result<Found, Lost> {
    private.send(Class::Ordinary, &encode([&b"GET"[..], key]).into(), true);
    let mut begun = Output::default();
    exchange(private, &mut begun, |_, begun| begun.has_remaining()).await?;
    if let Some((header, len)) = string_header(begun.chunk()) {
        begun.advance(header);
        return Ok(Found::Value(len, begun));
    }
    exchange(private, &mut begun, |private, begun| {
        private.unanswered() == 0 || begun.remaining() > MOST_OTHER
    })
    .await?;
    match private.unanswered() {
        0 => Ok(Found::Other(begun.copy_to_bytes(begun.remaining()))),
        _ => Err("its reply to GET is not a string".to_owned().into()),
    }
}

/// Length of the header of a string, and of the string. `None` for null, and for everything else.
fn string_header(reply: &[u8]) -> Option<(usize, usize)> {
    let end = reply.iter().position(|byte| *byte == b'\r')?;
    let len = integer::parse(reply[..end].strip_prefix(b"$")?)?;
    Some((end + b"\r\n".len(), len.try_into().ok()?))
}

/// Where a value comes from.
pub(super) enum Source<'a> {
    /// The rest of the reply to [`get`], behind what has arrived.
    Server(&'a mut Private, &'a mut Output),
    Node(&'a mut ValueReader),
}

impl Source<'_> {
    /// Fills `room` with the next bytes, of which there are that many.
    pub(super) async fn fill(&mut self, room: &mut [u8]) -> Result<(), Lost> {
        let mut filled = 0;
        match self {
            Self::Server(private, begun) => {
                filled = begun.remaining().min(room.len());
                begun.copy_to_slice(&mut room[..filled]);
                while filled < room.len() {
                    filled += poll_fn(|cx| private.poll_string(cx, &mut room[filled..])).await?;
                }
            }
            Self::Node(reader) => {
                while filled < room.len() {
                    filled += reader.read(&mut room[filled..]).await?;
                }
            }
        }
        Ok(())
    }

    /// Reads the rest, `len` bytes of the value and its end, and drops it.
    pub(super) async fn skip(mut self, len: usize) -> Result<(), Lost> {
        let mut room = vec![0; len.min(MOST_OTHER)];
        let mut rest = len;
        while rest > 0 {
            let next = rest.min(room.len());
            self.fill(&mut room[..next]).await?;
            rest -= next;
        }
        self.finish().await
    }

    /// Reads the end of the reply.
    pub(super) async fn finish(self) -> Result<(), Lost> {
        match self {
            Self::Server(private, begun) => {
                exchange(private, begun, |private, _| private.unanswered() == 0).await
            }
            Self::Node(reader) => reader.finish().await.map_err(Lost::from),
        }
    }
}

/// Where a value goes.
pub(super) enum Sink<'a> {
    /// The server's replies go to the output: it may refuse the value before its end.
    Server(&'a mut Private, &'a mut Output),
    Node(Box<ValueWriter>),
}

impl<'a> Sink<'a> {
    /// Begins SET with a value of this length.
    pub(super) fn new(private: &'a mut Private, replies: &'a mut Output, key: &[u8], len: usize) -> Self {
        let mut head = encode([&b"SET"[..], key, b""]);
        // In place of an empty word.
        head.truncate(head.len() - b"$0\r\n\r\n".len());
        put_header(&mut head, b'$', len);
        private.send(Class::Ordinary, &head.into(), false);
        Self::Server(private, replies)
    }

    /// Sends the next bytes.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        match self {
            Self::Server(private, replies) => {
                let mut sent = 0;
                while sent < bytes.len() {
                    sent += poll_fn(|cx| {
                        let lost = private.poll_replies(cx, replies, MOST_OTHER);
                        match private.poll_argument(cx, &bytes[sent..]) {
                            Poll::Pending => lost.map(Err),
                            written => written,
                        }
                    })
                    .await?;
                }
                Ok(())
            }
            Self::Node(writer) => writer.write(bytes).await.map_err(Lost::from),
        }
    }

    /// Sends the end of the command, and waits for its reply.
    pub(super) async fn finish(self) -> Result<(), Lost> {
        match self {
            Self::Server(private, replies) => {
                private.send_on(&Bytes::from_static(b"\r\n"), true);
                exchange(private, replies, |private, _| private.unanswered() == 0).await
            }
            Self::Node(writer) => writer.finish().await.map(drop).map_err(Lost::from),
        }
    }
}

/// Sends what waits, and moves replies to `out`, until `is_done`.
async fn exchange(
    private: &mut Private,
    out: &mut Output,
    is_done: impl Fn(&Private, &Output) -> bool,
) -> Result<(), Lost> {
    let mut exchange = |cx: &mut Context<'_>| {
        loop {
            if is_done(private, out) {
                return Poll::Ready(Ok(()));
            }
            let sent = private.poll_send(cx);
            let before = out.remaining();
            // The server's last replies come before its end.
            let received = private.poll_replies(cx, out, before + 1);
            let lost = match (received, sent) {
                (Poll::Ready(cause), _) | (_, Poll::Ready(cause)) => Poll::Ready(Err(cause.into())),
                _ => Poll::Pending,
            };
            if out.remaining() == before || lost.is_ready() && !is_done(private, out) {
                return lost;
            }
        }
    };
    poll_fn(|cx| exchange(cx)).await
}

/// Most bytes of a reply without a value, and of a value that is dropped while it arrives.
const MOST_OTHER: usize = 64 * 1024;
