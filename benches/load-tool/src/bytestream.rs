//! `-t stream` and `-t echo`: the byte stream without RESP, to measure the network without a server.
//!
//! The other end is this tool too, with `--serve-echo`. The first byte of a connection selects what the server does: `E`
//! sends everything back, `S` counts it. After the last message of a stream the server sends the count as 8 bytes,
//! big-endian, so that the sender knows that all bytes have arrived.

mod measure;
mod reference;
mod serve;

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::address::listen_advice;

pub(crate) use self::measure::measure;
pub(crate) use self::reference::write_reference;
pub(crate) use self::serve::serve;
use crate::generator::{DialError, Limit, NoReply, Target};
use crate::measure::Latencies;

/// What goes where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// `-t stream`: as many messages as fit, one way.
    OneWay,
    /// `-t echo`: one message there and back at a time.
    Both,
}

/// How much is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// Number of connections.
    pub(crate) connections: usize,
    /// Length of each message in bytes.
    pub(crate) message: usize,
    /// When it ends; requests are messages.
    pub(crate) limit: Limit,
    /// How long one message may take; `None` for ever.
    pub(crate) reply_timeout: Option<Duration>,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("cannot serve at {addr}{}", listen_advice(*.addr, .source))]
    Bind { addr: SocketAddr, source: io::Error },
    #[error("cannot serve over this device")]
    Device(#[from] TransportError),
    #[error("the connection broke; is the other end valkey-rdma-benchmark --serve-echo?")]
    Broken(#[from] io::Error),
    #[error(
        "the echo differs from what was sent, at byte {at} of a message; is the other end valkey-rdma-benchmark --serve-echo?"
    )]
    Differs { at: usize },
    #[error("the other end does not respond; is it valkey-rdma-benchmark --serve-echo?")]
    Silent(#[from] NoReply),
    #[error("{arrived} bytes arrived of {sent} that were sent")]
    Miscounted { arrived: u64, sent: u64 },
}

/// What was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    direction: Direction,
    bytes: u64,
    messages: u64,
    elapsed: Duration,
    latencies: Latencies,
}

impl Measured {
    /// Writes it as a table.
    pub(crate) fn write(&self, out: &mut dyn Write, target: &Target, ends: &Ends) -> io::Result<()> {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        writeln!(
            out,
            "{} over {}: {} connections, messages of {} bytes",
            self.direction,
            target.transport(),
            ends.connections,
            ends.message
        )?;
        writeln!(
            out,
            "{:>14} {:>14} {:>12} {:>12} {:>12}",
            "messages/s", "MB/s", "p50 us", "p99 us", "max us"
        )?;
        let us = |duration: Duration| match self.direction {
            Direction::OneWay => "-".to_owned(),
            Direction::Both => format!("{:.3}", duration.as_secs_f64() * 1e6),
        };
        writeln!(
            out,
            "{:>14.0} {:>14.2} {:>12} {:>12} {:>12}",
            self.messages as f64 / seconds,
            self.bytes as f64 / seconds / 1e6,
            us(self.latencies.quantile(0.5)),
            us(self.latencies.quantile(0.99)),
            us(self.latencies.max()),
        )
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Direction::OneWay => "stream",
            Direction::Both => "echo",
        })
    }
}

/// The first byte of a connection whose bytes are sent back.
const ECHO: u8 = b'E';
/// The first byte of a connection whose bytes are counted.
const SINK: u8 = b'S';
/// Ends a stream: no message byte has this value.
const END: u8 = 0xff;
/// Room for received bytes.
const ROOM: usize = 256 * 1024;
