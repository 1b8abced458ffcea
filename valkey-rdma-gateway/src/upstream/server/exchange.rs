//! [`exchange`]: the commands of a login, and the server's reply to each.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::debug;
use valkey_rdma_client::ByteStream;
use valkey_rdma_resp::FrameScanner;

/// Sends commands and returns one frame for each. Fewer, if the server has refused one of them and closed the connection.
pub(super) async fn exchange(
    stream: &mut ByteStream,
    commands: &[u8],
    replies: usize,
) -> io::Result<Vec<Bytes>> {
    // A server that has no room refuses before it is asked, and closes: what it said is still there to be read.
    let written = async {
        stream.write_all(commands).await?;
        stream.flush().await
    };
    let written = written.await;
    let mut frames = Vec::with_capacity(replies);
    let received = receive(stream, &mut frames, replies).await;
    match written.and(received) {
        // A refusal that came before the end says more than the end.
        Err(error) if is_end(&error) && frames.iter().any(|frame| frame.starts_with(b"-")) => {
            debug!(%error, "closed by the server during the login");
            Ok(frames)
        }
        ended => ended.map(|()| frames),
    }
}

async fn receive(stream: &mut ByteStream, frames: &mut Vec<Bytes>, replies: usize) -> io::Result<()> {
    let mut scanner = FrameScanner::default();
    let (mut buffer, mut scanned) = (BytesMut::new(), 0);
    while frames.len() < replies || !buffer.is_empty() {
        // A push message is not a reply, and this connection has no listener yet.
        if frames.len() == replies && !buffer.starts_with(b">") {
            return Err(no_login("it sent more than the replies to the login"));
        }
        let found = scanner.scan(&buffer[scanned..]).map_err(no_login)?;
        scanned += found.len;
        if found.complete {
            let frame = buffer.split_to(scanned).freeze();
            if !frame.starts_with(b">") {
                frames.push(frame);
            }
            scanned = 0;
        } else if buffer.len() > MAX_LOGIN {
            return Err(no_login("its replies to the login are too long; is it a Valkey server?"));
        } else if stream.read_buf(&mut buffer).await? == 0 {
            let text = "it closed the connection during the login";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
    }
    Ok(())
}

/// The error of a peer that answers in another way than a server.
fn no_login(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Whether the connection has ended. Otherwise it has carried bytes that are not replies.
fn is_end(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::InvalidData
}

/// Most bytes of replies to a login.
const MAX_LOGIN: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use valkey_rdma_client::{Config, Dialer};

    use super::*;
    use crate::command::words::encode;

    const FULL: &[u8] = b"-ERR max number of clients reached\r\n";

    async fn connected() -> (ByteStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("valkey://{}", listener.local_addr().unwrap());
        let dialer = Dialer::new(url.as_str(), &Config::default()).unwrap();
        let (accepted, dialed) = tokio::join!(listener.accept(), dialer.dial());
        (dialed.unwrap(), accepted.unwrap().0)
    }

    /// The system answers what arrives at a closed connection with a reset: reading fails then, and so does the next write.
    #[tokio::test]
    async fn a_server_that_refused_and_closed_before_it_was_asked_has_refused() {
        for writes_before in 0..2 {
            let (mut stream, mut server) = connected().await;
            server.write_all(FULL).await.unwrap();
            drop(server);
            for _ in 0..writes_before {
                stream.write_all(&encode(["PING"])).await.unwrap();
            }
            let replies = exchange(&mut stream, &encode(["PING"]), 2).await.unwrap();
            assert_eq!(replies, [FULL], "after {writes_before} writes");
        }
    }

    #[tokio::test]
    async fn push_messages_are_no_replies_and_another_reply_is_one_too_many() {
        const PUSH: &[u8] = b">2\r\n$10\r\ninvalidate\r\n_\r\n";
        for (said, is_right) in [
            (&[PUSH, b"+OK\r\n", PUSH, b"+PONG\r\n", PUSH][..], true),
            (&[b"+OK\r\n", b"+PONG\r\n", b":1\r\n"], false),
            (&[b"+OK\r\n", b"+PONG\r\n", PUSH, b"$5\r\nab"], false),
            (&[b"+OK\r\n", b"+PONG\r\n", b":"], false),
        ] {
            let (mut stream, mut server) = connected().await;
            server.write_all(&said.concat()).await.unwrap();
            let replies = exchange(&mut stream, &encode(["PING"]), 2).await;
            assert_eq!(replies.ok(), is_right.then(|| vec!["+OK\r\n".into(), "+PONG\r\n".into()]));
        }
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_has_not_refused() {
        let (mut stream, server) = connected().await;
        drop(server);
        exchange(&mut stream, &encode(["PING"]), 1).await.unwrap_err();
    }
}
