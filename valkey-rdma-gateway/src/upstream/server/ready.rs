//! Whether a server that is connected is ready: what `/health` asks it, and what a new connection waits for.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{sleep, timeout};
use valkey_rdma_client::{ByteStream, Endpoint};

use super::Server;
use super::exchange::exchange;
use super::returns::Returns;
use crate::command::words::encode;
use crate::upstream::backoff;
use crate::upstream::open_error::OpenError;

impl Server {
    /// Waits until the server has read its data, which it did not at `pong`, its reply to PING. It would answer the commands of clients with
    /// LOADING: those that are connected directly look at that only when they connect, and through the gateway they stay connected.
    pub(super) async fn until_loaded(
        &self,
        endpoint: &Endpoint,
        stream: &mut ByteStream,
        mut pong: Bytes,
    ) -> Result<(), OpenError> {
        let mut attempts = 0;
        while is_loading(&pong) {
            self.standing.note(&pong, Instant::now());
            sleep(backoff::wait(attempts)).await;
            attempts += 1;
            pong = ask(endpoint, stream, &["PING"]).await?;
        }
        Ok(())
    }

    /// The server's reply to HELLO, which says its role to every user.
    pub(crate) async fn hello(&self, stream: &mut ByteStream) -> Result<Bytes, OpenError> {
        ask(self.endpoint(), stream, &["HELLO"]).await
    }

    /// Whether the server answers on this connection, logged in or not, and what it says if it is not ready: it still reads its data, or is
    /// in a state that errors to clients have shown.
    pub(crate) async fn unready(
        &self,
        endpoint: &Endpoint,
        stream: &mut ByteStream,
    ) -> Result<Option<OpenError>, OpenError> {
        let reply = ping(endpoint, stream).await?;
        if is_loading(&reply) {
            return Ok(Some(OpenError::Refused(reply)));
        }
        for doubt in self.standing.doubts(Instant::now()) {
            let answer = match doubt.question() {
                Some(question) => ask(endpoint, stream, question).await?,
                // The answer to PING has shown that it is not so.
                None => Bytes::new(),
            };
            match doubt.confirmed(&answer) {
                Some(text) => return Ok(Some(OpenError::Refused(text.into()))),
                None => self.standing.refute(doubt),
            }
        }
        Ok(None)
    }
}

/// The server's answer to PING: PONG, or an error of a server that is there.
pub(super) async fn ping(endpoint: &Endpoint, stream: &mut ByteStream) -> Result<Bytes, OpenError> {
    let reply = ask(endpoint, stream, &["PING"]).await?;
    if refuses_connection(&reply) {
        return Err(OpenError::Refused(reply));
    }
    Returns::Pong.check(&reply).map_err(|text| OpenError::Unreachable(format!("{endpoint}: {text}")))?;
    Ok(reply)
}

/// The answer to one question of a probe.
async fn ask(endpoint: &Endpoint, stream: &mut ByteStream, question: &[&str]) -> Result<Bytes, OpenError> {
    let limit = MAX_SILENCE;
    match timeout(limit, exchange(stream, &encode(question), 1)).await {
        Ok(Ok(mut replies)) => Ok(replies.pop().unwrap_or_default()),
        Ok(Err(error)) => Err(OpenError::Unreachable(format!("{endpoint}: {error:#}"))),
        Err(_) => Err(OpenError::Unreachable(format!("{endpoint} did not answer within {limit:?}"))),
    }
}

/// Whether a reply to PING refuses the connection: there are too many, or it is not from the server's own machine. Other errors come
/// from a server that is there, such as one that requires a login or reads its data.
fn refuses_connection(reply: &[u8]) -> bool {
    ["-ERR", "-DENIED"].iter().any(|code| reply.starts_with(code.as_bytes()))
}

/// Whether a reply says that the server still reads its data.
fn is_loading(reply: &[u8]) -> bool {
    reply.starts_with(b"-LOADING")
}

/// How long a question of a probe waits for its answer: as long as a silent connection is kept.
const MAX_SILENCE: Duration = Duration::from_secs(20);
