//! Settings of a stream and of a listener's streams.

mod device;
mod url_options;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use valkey_rdma_proto::{self as proto, FeatureSet};

use crate::device::{QUEUE_DEPTH, SharedCq};
use crate::polling::Polling;

pub use self::url_options::{UrlOptions, percent_decode};

/// How connections are made. [`Config::default`] works unedited.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) rx_size: u32,
    pub(crate) rx_buffers: u32,
    pub(crate) send_buffer: u32,
    pub(crate) connect_timeout: Duration,
    handshake_timeout: Duration,
    close_timeout: Duration,
    idle_timeout: Option<Duration>,
    stall_timeout: Option<Duration>,
    keepalive: Keepalive,
    device: Option<String>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) max_pinned_bytes: Option<u64>,
    linger: Option<Duration>,
    pub(crate) polling: Polling,
    pub(crate) spin_limit: Duration,
    pub(crate) spin_anyway: bool,
    gid: Option<u32>,
    source: Option<IpAddr>,
    shared_cq: Option<SharedCq>,
    send_depth: u32,
    pub(crate) receive_depth: u32,
    ack_timeout: Option<Duration>,
    retry_count: Option<u8>,
    offers: FeatureSet,
    wants: FeatureSet,
    requires: FeatureSet,
}

/// Whether keepalives are sent.
#[derive(Clone, Copy, Debug)]
enum Keepalive {
    /// As the role has it: a server sends them, a client does not.
    ByRole,
    Every(Duration),
    Never,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rx_size: DEFAULT_RX_SIZE,
            rx_buffers: 2,
            send_buffer: (1 << 20) + FIRST_SEND_BUFFER,
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
            idle_timeout: None,
            stall_timeout: None,
            keepalive: Keepalive::ByRole,
            device: None,
            max_connections: None,
            max_pinned_bytes: None,
            linger: None,
            polling: Polling::Event,
            spin_limit: Duration::from_micros(50),
            spin_anyway: false,
            gid: None,
            source: None,
            shared_cq: None,
            send_depth: QUEUE_DEPTH,
            receive_depth: QUEUE_DEPTH,
            ack_timeout: None,
            retry_count: None,
            offers: FeatureSet::NONE,
            wants: FeatureSet::NONE,
            requires: FeatureSet::NONE,
        }
    }
}

impl Config {
    /// Values of [`rx_size`](Self::rx_size) that URLs of clients and servers take, in bytes: 64 KiB to 16 MiB, as Valkey's `rdma-rx-size`
    /// does. They refuse others.
    pub const URL_RX_SIZES: RangeInclusive<u32> = 65_536..=16_777_216;

    /// Length in bytes of the window offered to the peer. Default 1 MiB (valkey `src/rdma.c`), range 1 byte to
    /// 1 GiB; values outside are brought to the nearest end. URLs take [less](Self::URL_RX_SIZES).
    ///
    /// The peer can have this much in flight. Small windows save pinned memory and cache, large ones save
    /// round trips on large values. A Valkey server pins as much again on its side, so stay within 64 KiB to
    /// 16 MiB towards one.
    #[must_use]
    pub fn rx_size(mut self, bytes: u32) -> Self {
        self.rx_size = bytes.clamp(1, MAX_RX_SIZE);
        self
    }

    /// How many windows of that length to rotate. Default 2: the peer fills one while the other is read.
    /// Range 1 to 16. Each costs pinned memory.
    #[must_use]
    pub fn rx_buffers(mut self, count: u32) -> Self {
        self.rx_buffers = count.clamp(1, 16);
        self
    }

    /// Values of [`send_buffer`](Self::send_buffer) that URLs of clients and servers take, in bytes: 64 KiB to 16 MiB. They refuse
    /// others.
    pub const URL_SEND_BUFFERS: RangeInclusive<u32> = 65_536..=16_777_216;

    /// Bytes of pinned memory for data on its way out, at most. Default 1 MiB and 64 KiB, range 4 KiB to 1 GiB; values outside are
    /// brought to the nearest end. URLs take [less](Self::URL_SEND_BUFFERS). Independent of the peer's window.
    ///
    /// A connection pins 64 KiB of it at first. When it has more than that to send at once, it pins the rest, and sends from there: as
    /// much as a window of the default size takes. It gives the rest back when it has written nothing for 10 to 30 s. Sizes up to 128 KiB
    /// are pinned at once, and stay.
    /// Smaller blocks writers earlier. As many bytes of [pools](crate::BufferPool) may be in flight: they count as if they
    /// were in it.
    #[must_use]
    pub fn send_buffer(mut self, bytes: u32) -> Self {
        self.send_buffer = bytes.clamp(4096, MAX_RX_SIZE);
        self
    }

    /// Shortens windows and send buffer to `bytes`, where they are longer: for connections that carry little.
    #[must_use]
    pub fn buffers_at_most(self, bytes: u32) -> Self {
        let (window, send_buffer) = (self.rx_size.min(bytes), self.send_buffer.min(bytes));
        self.rx_size(window).send_buffer(send_buffer)
    }

    /// How long connecting may take, from the first address lookup to the peer's offer of memory. Default 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long a connected peer may take to offer its memory. Default 10 s. The side that connects waits no longer than
    /// [`connect_timeout`](Self::connect_timeout) either.
    #[must_use]
    pub fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.handshake_timeout = limit;
        self
    }

    /// How long closing waits until the peer's device has acknowledged what was written. Default 5 s.
    #[must_use]
    pub fn close_timeout(mut self, limit: Duration) -> Self {
        self.close_timeout = limit;
        self
    }

    /// How long a closing connection waits for its peer to disconnect first, after everything written was
    /// acknowledged. What arrives in the meantime can still be read. Default: 100 ms on accepted connections, because
    /// libvalkey 0.4 may miss a reply that is followed by a disconnect at once; none on others. 0 disconnects at once.
    ///
    /// The protocol has no half-close. A longer time lets replies to the last requests arrive after a shutdown, as
    /// they would over TCP; a shutdown then takes that long unless the peer disconnects.
    #[must_use]
    pub fn linger(mut self, limit: Duration) -> Self {
        self.linger = Some(limit);
        self
    }

    /// How connections wait for their device. Default [`Polling::Event`].
    #[must_use]
    pub fn polling(mut self, mode: Polling) -> Self {
        self.polling = mode;
        self
    }

    /// How long [`Polling::Adaptive`] spins before it sleeps, at most. A completion that arrives within this time
    /// after falling asleep makes it spin longer next time. Default 50 µs, range 0 to 100 ms; larger values become
    /// 100 ms. Longer uses more CPU for fewer system calls; 0 is [`Polling::Event`].
    #[must_use]
    pub fn spin_limit(mut self, limit: Duration) -> Self {
        self.spin_limit = limit.min(MAX_SPIN);
        self
    }

    /// Lets [`Polling::Adaptive`] spin where it is [off](Polling::Adaptive) by default. Default `false`. Spinning
    /// there takes the CPU away from the work that is waited for: for tests and measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn danger_spin_anyway(mut self, spin: bool) -> Self {
        self.spin_anyway = spin;
        self
    }

    /// How long nothing at all may arrive from the peer, keepalives included. Default: for ever. On an accepted
    /// connection this ends idle clients; on a connected one it finds a dead server, if it is at least three of the
    /// server's keepalive periods.
    #[must_use]
    pub fn idle_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.idle_timeout = limit.into();
        self
    }

    /// How long data may wait for the peer's next receive window. Default: no limit. It finds a peer that has stopped
    /// reading but still sends keepalives, which [`idle_timeout`](Self::idle_timeout) does not.
    #[must_use]
    pub fn stall_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.stall_timeout = limit.into();
        self
    }

    /// Period of keepalives. Default: every 3 s on accepted connections (as Valkey does), none on others.
    #[must_use]
    pub fn keepalive(mut self, period: impl Into<Option<Duration>>) -> Self {
        self.keepalive = period.into().map_or(Keepalive::Never, Keepalive::Every);
        self
    }

    /// Limit of open connections of one listener. Default: none, beyond the machine's memory and queue pairs. Further
    /// requests are rejected before a queue pair is made or memory is pinned; the device may already hold a
    /// connection-manager object for them. Ignored when connecting.
    #[must_use]
    pub fn max_connections(mut self, limit: impl Into<Option<usize>>) -> Self {
        self.max_connections = limit.into();
        self
    }

    /// Limit of the bytes that the connections of one listener pin together, each
    /// [`pinned_bytes`](Self::pinned_bytes). Default: none, beyond the process's (`ulimit -l`). Further requests are
    /// rejected before a queue pair is made or memory is pinned. Ignored when connecting. [Pools](crate::BufferPool)
    /// and [direct memory](crate::DirectMemory) that they register later do not count.
    #[must_use]
    pub fn max_pinned_bytes(mut self, limit: impl Into<Option<u64>>) -> Self {
        self.max_pinned_bytes = limit.into();
        self
    }

    /// Bytes that one connection registers with its device at most: windows, send buffer, and 33 KiB for messages, or 32
    /// bytes for each of [`receive_depth`](Self::receive_depth) and half a KiB. The device pins whole pages, and memory of its
    /// own for the queues. 3 244 544 by default.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes_at_first() + u64::from(self.send_buffer - self.first_send_buffer())
    }

    /// Bytes that one connection registers before it has more than 64 KiB to send at once: as
    /// [`pinned_bytes`](Self::pinned_bytes), with the first part of the [send buffer](Self::send_buffer). 2 195 968 by default.
    pub fn pinned_bytes_at_first(&self) -> u64 {
        u64::from(proto::control_region_len(self.receive_depth))
            + u64::from(self.first_send_buffer())
            + u64::from(self.rx_buffers) * u64::from(self.rx_size)
    }

    /// The part of the send buffer that is registered while connecting. All of it, if a first part would be most of it.
    pub(crate) fn first_send_buffer(&self) -> u32 {
        if self.send_buffer > 2 * FIRST_SEND_BUFFER { FIRST_SEND_BUFFER } else { self.send_buffer }
    }

    /// Bytes that can be reserved in the send buffer at once. The device acknowledges each quarter of what there is, so three quarters
    /// become free without more being sent.
    pub(crate) fn max_reservation(&self) -> u32 {
        let long = self.send_buffer - self.first_send_buffer();
        let half = self.send_buffer / 2;
        if long == 0 { half } else { half.min(long / 4 * 3) }
    }

    /// Features that an accepted connection offers to peers that ask (spec clause F-5). Default: none, as Valkey. What the peer has
    /// chosen is what [`Stream::agreed`](crate::Stream::agreed) returns; to act on it is the caller's part. Ignored when connecting.
    #[must_use]
    pub fn offers(mut self, features: FeatureSet) -> Self {
        self.offers = features;
        self
    }

    /// Features to use if the server offers them, such as [`FeatureSet::DIRECT`]. What it offers is not authenticated, so TLS
    /// belongs to [`requires`](Self::requires). Default: none. Ignored on accepted connections. Direct transfers
    /// are plain, so they are not wanted of a server that must offer TLS.
    #[must_use]
    pub fn wants(mut self, features: FeatureSet) -> Self {
        self.wants = features;
        self
    }

    /// Whether this side may use direct transfers.
    fn may_be_direct(&self) -> bool {
        (self.offers | self.wants | self.requires).contains(FeatureSet::DIRECT)
    }

    /// Features that a server must offer: otherwise connecting ends with [`CloseReason::NotOffered`](crate::CloseReason::NotOffered)
    /// before a byte is sent. Default: none. Ignored on accepted connections.
    #[must_use]
    pub fn requires(mut self, features: FeatureSet) -> Self {
        self.requires = features;
        self
    }

    pub(crate) fn protocol(&self, role: proto::Role) -> proto::Config {
        let mut config = proto::Config::new(role);
        config.handshake_timeout = match role {
            proto::Role::Client => self.connect_timeout.min(self.handshake_timeout),
            proto::Role::Server => self.handshake_timeout,
        };
        (config.offers, config.wants, config.requires) = (self.offers, self.wants, self.requires);
        // What is transferred would be plain (spec clause D-1).
        if self.requires.contains(FeatureSet::TLS) {
            config.wants = self.wants - FeatureSet::DIRECT;
        }
        config.close_timeout = self.close_timeout;
        config.idle_timeout = self.idle_timeout;
        config.stall_timeout = self.stall_timeout;
        if let Some(limit) = self.linger {
            config.linger = limit;
        }
        match self.keepalive {
            Keepalive::ByRole => {}
            Keepalive::Every(period) => config.keepalive = Some(period),
            Keepalive::Never => config.keepalive = None,
        }
        config
    }
}

/// What Valkey and libvalkey use (valkey `src/rdma.c`, `VALKEY_RDMA_DEFAULT_RX_SIZE`).
const DEFAULT_RX_SIZE: u32 = 1 << 20;

const MAX_RX_SIZE: u32 = 1 << 30;

/// Most connections never have more than this to send at once.
const FIRST_SEND_BUFFER: u32 = 64 << 10;

const MAX_SPIN: Duration = Duration::from_millis(100);
