//! The control connection: lines of JSON over TCP.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::error::FabricError;
use super::message::Message;

/// Longer lines are none of ours.
const LONGEST: usize = 1 << 20;

/// Slower than any network that RDMA runs on, and than any that is emulated: bytes per second.
const SLOWEST: u64 = 1 << 20;

/// The control connection to a peer.
pub(super) struct Control {
    stream: TcpStream,
    peer: SocketAddr,
    /// A message that came before it was asked for.
    early: Option<Message>,
    /// Bytes that have arrived and are not a whole line yet.
    received: Vec<u8>,
    /// How long the peer may be silent where an answer is due.
    pub(super) patience: Duration,
    /// What is in progress, for errors.
    pub(super) during: String,
}

impl Control {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, patience: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            peer,
            early: None,
            received: Vec::new(),
            patience,
            during: "the greeting".to_owned(),
        })
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Names what is in progress.
    pub(super) fn now(&mut self, what: impl Into<String>) {
        self.during = what.into();
    }

    pub(super) async fn send(&mut self, message: &Message) -> Result<(), FabricError> {
        let mut line = serde_json::to_vec(message).expect("messages are texts and numbers");
        line.push(b'\n');
        match timeout(self.patience, self.stream.write_all(&line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.vanished()),
            Err(_) => Err(self.silent(self.patience)),
        }
    }

    /// The next message, within the peer's patience.
    pub(super) async fn answer(&mut self) -> Result<Message, FabricError> {
        let patience = self.patience;
        self.answer_within(patience).await
    }

    pub(super) async fn answer_within(&mut self, limit: Duration) -> Result<Message, FabricError> {
        timeout(limit, self.next()).await.unwrap_or_else(|_| Err(self.silent(limit)))
    }

    /// The next message, whenever it comes. A failure that the peer reports is an error.
    ///
    /// Cancel safe: what has arrived is kept.
    pub(super) async fn next(&mut self) -> Result<Message, FabricError> {
        if let Some(message) = self.early.take() {
            return Ok(message);
        }
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return match serde_json::from_slice(&line) {
                    Ok(Message::Failed { reason }) => {
                        Err(FabricError::Peer { peer: self.peer, during: self.during.clone(), reason })
                    }
                    Ok(message) => Ok(message),
                    Err(error) => Err(self.stranger(error.to_string())),
                };
            }
            if self.received.len() > LONGEST {
                return Err(self.stranger("a line without end".to_owned()));
            }
            match self.stream.read_buf(&mut self.received).await {
                Ok(0) | Err(_) => return Err(self.vanished()),
                Ok(_) => {}
            }
        }
    }

    /// Does `work` while the peer has nothing to say: what it says is why it has failed.
    pub(super) async fn silent_during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, FabricError> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            message = self.next() => Err(match message {
                Ok(message) => self.unexpected(&message),
                Err(error) => error,
            }),
        }
    }

    /// Ends the connection with the reason. Without it, this process would seem to be gone.
    pub(super) async fn dismiss(mut self, reason: &str) {
        // The peer may be gone as well.
        let _ = self.send(&Message::Failed { reason: reason.to_owned() }).await;
    }

    /// Gives back a message that came before it was asked for.
    pub(super) fn put_back(&mut self, message: Message) {
        self.early = Some(message);
    }

    /// The error that a message makes no sense here.
    pub(super) fn unexpected(&self, message: &Message) -> FabricError {
        self.stranger(format!("it said {message:?} during {}", self.during))
    }

    fn stranger(&self, reason: String) -> FabricError {
        // It may be anything, so not much of it is quoted.
        FabricError::Stranger { peer: self.peer, reason: reason.chars().take(120).collect() }
    }

    fn vanished(&self) -> FabricError {
        FabricError::Vanished { peer: self.peer, during: self.during.clone() }
    }

    /// The error that the peer did not answer within `limit`.
    pub(super) fn silent(&self, limit: Duration) -> FabricError {
        FabricError::Silent { peer: self.peer, during: self.during.clone(), limit }
    }

    /// How long the peer may be silent while this number of bytes is on its way.
    pub(super) fn patience_for(&self, bytes: u64) -> Duration {
        self.patience + Duration::from_secs(bytes / SLOWEST)
    }
}
