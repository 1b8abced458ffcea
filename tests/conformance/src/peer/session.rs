//! A client that keeps the rules, and checks that the server does.

use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;
use tokio::time::Instant;
use valkey_rdma_transport::device::wire::{ControlMessage, Features, MESSAGE_LEN, XferMemory};
use valkey_rdma_transport::device::work::Region;

use super::{Finding, Peer, Seen};

/// The client's side of a connection: windows, Registers, commands and replies.
///
/// Everything the server sends is checked against the specification: lengths, opcodes, reserved bytes, immediates, Registers
/// that come early or change their length. A violation is a [`Finding`] that names the clause.
///
/// Every call fails with such a finding, as well as with those of [`Peer`].
pub struct Session {
    /// The raw peer below, for what the rules do not allow.
    pub peer: Peer,
    windows: Vec<Region>,
    current: usize,
    announced: u32,
    remote: Option<XferMemory>,
    written: u32,
    received: Vec<u8>,
    answers: Vec<Features>,
    registers: u64,
    keepalives: u64,
    immediates: u64,
    /// Fills the reserved bytes of its messages.
    noise: bool,
    /// Does not offer its window again when it is full.
    withholds: bool,
}

impl Session {
    /// A session with one window of `len` bytes, which is not offered yet.
    pub fn new(mut peer: Peer, len: u32) -> Result<Self, Finding> {
        let window = peer.window(len)?;
        Ok(Self {
            peer,
            windows: vec![window],
            current: 0,
            announced: 0,
            remote: None,
            written: 0,
            received: Vec::new(),
            answers: Vec::new(),
            registers: 0,
            keepalives: 0,
            immediates: 0,
            noise: false,
            withholds: false,
        })
    }

    /// Offers the window, and waits for the server's.
    pub async fn handshake(&mut self) -> Result<(), Finding> {
        self.offer().await?;
        self.remote().await.map(drop)
    }

    /// Sends a Register for the window.
    pub async fn offer(&mut self) -> Result<(), Finding> {
        let window = self.windows[self.current];
        self.announced = 0;
        self.say(ControlMessage::RegisterXferMemory(XferMemory {
            addr: window.addr,
            len: window.len,
            key: window.rkey,
        }))
        .await
    }

    /// Pins `len` more bytes of memory as the window that the next [`offer`](Self::offer) offers.
    pub fn change_window(&mut self, len: u32) -> Result<(), Finding> {
        let window = self.peer.window(len)?;
        self.windows.push(window);
        self.current = self.windows.len() - 1;
        Ok(())
    }

    /// All that lies in the window, announced or not.
    #[must_use]
    pub fn window_bytes(&self) -> Vec<u8> {
        let window = &self.windows[self.current];
        self.peer.read(window, 0, window.len)
    }

    /// From now on all reserved bytes that it sends are noise.
    pub fn make_noise(&mut self) {
        self.noise = true;
    }

    /// From now on a full window is not offered again, until [`offer`](Self::offer).
    pub fn withhold(&mut self) {
        self.withholds = true;
    }

    /// Offers full windows again from now on, and this one if it is full.
    pub async fn resume(&mut self) -> Result<(), Finding> {
        self.withholds = false;
        if self.window_is_full() { self.offer().await } else { Ok(()) }
    }

    /// Sends a control message.
    pub async fn say(&mut self, message: ControlMessage) -> Result<(), Finding> {
        let mut bytes = message.encode();
        if self.noise {
            reserved(&mut bytes).fill(0xa5);
        }
        self.peer.send(&bytes).await
    }

    /// The server's window, once it has offered one.
    pub async fn remote(&mut self) -> Result<XferMemory, Finding> {
        loop {
            if let Some(remote) = self.remote {
                return Ok(remote);
            }
            self.take_next().await?;
        }
    }

    /// Bytes left in the server's window.
    pub async fn room(&mut self) -> Result<u32, Finding> {
        Ok(self.remote().await?.len - self.written)
    }

    /// The address in the server's window where the next byte goes, and its key.
    pub async fn place(&mut self) -> Result<(u64, u32), Finding> {
        let remote = self.remote().await?;
        Ok((remote.addr + u64::from(self.written), remote.key))
    }

    /// Counts bytes that the raw peer wrote to the server's window.
    pub fn wrote(&mut self, len: u32) {
        self.written += len;
    }

    /// Writes and announces bytes, over as many windows as that takes.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Finding> {
        while !bytes.is_empty() {
            while self.room().await? == 0 {
                self.take_next().await?;
            }
            let room = self.room().await?.min(LARGEST_PIECE);
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            let (addr, key) = self.place().await?;
            self.peer.write_imm(addr, key, now, now.len() as u32).await?;
            self.wrote(now.len() as u32);
            bytes = later;
            // Takes what has arrived meanwhile, so that it does not pile up.
            while let Some(seen) = self.peer.glance()? {
                self.take(seen).await?;
            }
        }
        Ok(())
    }

    /// As [`write`](Self::write). The transcript does not show the bytes.
    pub async fn write_secret(&mut self, bytes: &[u8]) -> Result<(), Finding> {
        self.peer.hide_writes(true);
        let written = self.write(bytes).await;
        self.peer.hide_writes(false);
        written
    }

    /// Writes and announces at most what fits into the server's present window. Does not wait for another.
    pub async fn write_one(&mut self, bytes: &[u8]) -> Result<(), Finding> {
        let (addr, key) = self.place().await?;
        self.peer.write_imm(addr, key, bytes, bytes.len() as u32).await?;
        self.wrote(bytes.len() as u32);
        Ok(())
    }

    /// The next reply.
    pub async fn reply(&mut self) -> Result<OwnedFrame, Finding> {
        loop {
            match decode(&self.received) {
                Ok(Some((frame, len))) => {
                    self.received.drain(..len);
                    return Ok(frame);
                }
                Ok(None) => self.take_next().await?,
                Err(error) => return Err(Finding::failed(format!("a reply is not RESP: {error}"))),
            }
        }
    }

    /// Runs a command.
    pub async fn command(&mut self, args: &[&[u8]]) -> Result<OwnedFrame, Finding> {
        self.write(&request(args)).await?;
        self.reply().await
    }

    /// Runs PING.
    pub async fn ping(&mut self) -> Result<(), Finding> {
        let reply = self.command(&[b"PING"]).await?;
        expect_reply(&reply, &OwnedFrame::SimpleString(b"PONG".to_vec()))
    }

    /// Takes `count` replies, each of which must be PONG.
    pub async fn pongs(&mut self, count: usize) -> Result<(), Finding> {
        for number in 1..=count {
            let reply = self.reply().await.map_err(|finding| match finding {
                Finding::Failed(what) => {
                    Finding::failed(format!("{what}; {} of {count} replies had come", number - 1))
                }
                not_run => not_run,
            })?;
            expect_reply(&reply, &OwnedFrame::SimpleString(b"PONG".to_vec()))?;
        }
        Ok(())
    }

    /// Asks GetServerFeature and waits for the answer. The server works in order: its replies to everything before have
    /// arrived when the answer arrives.
    pub async fn ask(&mut self, select: u16) -> Result<Features, Finding> {
        self.ask_with(Features { select, bits: 0 }).await
    }

    /// As [`ask`](Self::ask), with feature bits in the question.
    pub async fn ask_with(&mut self, question: Features) -> Result<Features, Finding> {
        self.say(ControlMessage::GetServerFeature(question)).await?;
        while self.answers.is_empty() {
            self.take_next().await?;
        }
        Ok(self.answers.remove(0))
    }

    /// Takes whatever comes next, and the feature answers that have come by then. Returns how many those were.
    pub async fn take_answers(&mut self) -> Result<usize, Finding> {
        self.take_next().await?;
        Ok(std::mem::take(&mut self.answers).len())
    }

    /// Takes what comes, up to and including the first that is not a keepalive. Keepalives do not prolong the wait.
    pub async fn take_next(&mut self) -> Result<(), Finding> {
        let deadline = Instant::now() + self.peer.patience();
        loop {
            let seen = self.peer.next_before(deadline).await?;
            let keepalives = self.keepalives;
            self.take(seen).await?;
            if self.keepalives == keepalives {
                return Ok(());
            }
        }
    }

    /// Takes what comes next, be it a keepalive.
    pub async fn take_anything(&mut self) -> Result<(), Finding> {
        let seen = self.peer.next().await?;
        self.take(seen).await
    }

    /// Registers, keepalives and immediates received so far.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.registers, self.keepalives, self.immediates)
    }

    /// Bytes received that no reply has been made of.
    pub fn unread(&self) -> &[u8] {
        &self.received
    }

    /// Whether the window that was offered last is full.
    pub fn window_is_full(&self) -> bool {
        self.announced == self.windows[self.current].len
    }

    async fn take(&mut self, seen: Seen) -> Result<(), Finding> {
        match seen {
            Seen::Message(bytes) => self.take_message(&bytes),
            Seen::Announced { imm, byte_len } => {
                self.immediates += 1;
                self.take_data(imm, byte_len)?;
                if self.window_is_full() && !self.withholds {
                    self.offer().await?;
                }
                Ok(())
            }
            Seen::Failed(status) => Err(Finding::failed(format!("the connection failed: {status}"))),
            Seen::Closed(event) => {
                Err(Finding::failed(format!("the other side ended the connection: {event:?}")))
            }
        }
    }

    fn take_message(&mut self, bytes: &[u8]) -> Result<(), Finding> {
        let bytes = <[u8; MESSAGE_LEN]>::try_from(bytes).map_err(|_| {
            Finding::failed(format!("a control message of {} bytes (clause M-1)", bytes.len()))
        })?;
        let message = ControlMessage::decode(&bytes)
            .map_err(|error| Finding::failed(format!("a control message that is none: {error}")))?;
        let mut copy = bytes;
        if reserved(&mut copy).iter().any(|&byte| byte != 0) {
            return Err(Finding::failed("reserved bytes are not zero (clause M-2)"));
        }
        match message {
            ControlMessage::Keepalive => self.keepalives += 1,
            ControlMessage::GetServerFeature(features) => self.answers.push(features),
            ControlMessage::SetClientFeature(_) => {
                return Err(Finding::failed("the server sent opcode 1 (clause F-3)"));
            }
            ControlMessage::RegisterXferMemory(memory) => return self.take_register(memory),
        }
        Ok(())
    }

    fn take_register(&mut self, memory: XferMemory) -> Result<(), Finding> {
        self.registers += 1;
        if memory.len == 0 {
            return Err(Finding::failed("a window of no bytes (clause W-2)"));
        }
        if let Some(before) = self.remote.replace(memory) {
            if memory.len != before.len {
                return Err(Finding::failed(format!(
                    "a window of {} bytes after one of {} (clause W-3)",
                    memory.len, before.len
                )));
            }
            if self.written != before.len {
                return Err(Finding::failed(format!(
                    "a Register with {} of {} bytes announced (clause W-5)",
                    self.written, before.len
                )));
            }
        }
        self.written = 0;
        Ok(())
    }

    fn take_data(&mut self, imm: u32, byte_len: u32) -> Result<(), Finding> {
        let window = self.windows[self.current];
        let room = window.len - self.announced;
        if imm > room {
            return Err(Finding::failed(format!(
                "an immediate of {imm} with {room} bytes of room (clause I-2)"
            )));
        }
        if imm < byte_len {
            return Err(Finding::failed(format!(
                "an immediate of {imm} after a write of {byte_len} (clause I-3)"
            )));
        }
        let bytes = self.peer.read(&window, self.announced, imm);
        self.peer.note(&format!("   {}", super::evidence::describe_data(&bytes)));
        self.received.extend(bytes);
        self.announced += imm;
        Ok(())
    }
}

/// A command as bytes.
pub fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n", arg.len()).into_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Expects this reply.
pub(crate) fn expect_reply(found: &OwnedFrame, expected: &OwnedFrame) -> Result<(), Finding> {
    if found == expected {
        return Ok(());
    }
    let shorten = |frame: &OwnedFrame| format!("{frame:?}").chars().take(120).collect::<String>();
    Err(Finding::failed(format!("the reply is {} instead of {}", shorten(found), shorten(expected))))
}

/// The reserved bytes of a message.
pub(crate) fn reserved(message: &mut [u8; MESSAGE_LEN]) -> &mut [u8] {
    match message[1] {
        3 => &mut message[2..16],
        2 => &mut message[2..],
        _ => &mut message[4..24],
    }
}

/// The selector of this project's features (clause F-5).
pub(crate) const OWN_SELECTOR: u16 = 0x5652;

/// A client sends no more in one piece.
const LARGEST_PIECE: u32 = 64 * 1024;
