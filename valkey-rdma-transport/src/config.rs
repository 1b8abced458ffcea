//! The knobs of a stream and of a listener's streams.

use std::time::Duration;

use valkey_rdma_proto as proto;

use crate::device::EndpointOptions;

/// How connections are made. [`Config::default`] works unedited.
#[derive(Clone, Debug)]
pub struct Config {
    rx_size: u32,
    rx_buffers: u32,
    send_buffer: u32,
    connect_timeout: Duration,
    handshake_timeout: Duration,
    close_timeout: Duration,
    idle_timeout: Option<Duration>,
    keepalive: Keepalive,
    device: Option<String>,
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
            send_buffer: 1 << 20,
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
            idle_timeout: None,
            keepalive: Keepalive::ByRole,
            device: None,
        }
    }
}

impl Config {
    /// Length in bytes of the window offered to the peer. Default 1 MiB (valkey `src/rdma.c`), range 1 byte to
    /// 1 GiB; values outside are brought to the nearest end.
    ///
    /// The peer can have this much under way. Small windows save pinned memory and cache, large ones save
    /// round trips on large values. A Valkey server pins as much again on its side, so stay within 64 KiB to
    /// 16 MiB towards one.
    pub fn rx_size(&mut self, bytes: u32) -> &mut Self {
        self.rx_size = bytes.clamp(1, MAX_RX_SIZE);
        self
    }

    /// How many windows of that length to rotate. Default 2: the peer fills one while the other is read.
    /// Range 1 to 16. Each costs pinned memory.
    pub fn rx_buffers(&mut self, count: u32) -> &mut Self {
        self.rx_buffers = count.clamp(1, 16);
        self
    }

    /// Bytes of pinned memory for data on its way out. Default 1 MiB, range 4 KiB to 1 GiB. Independent of the
    /// peer's window. Smaller blocks writers earlier.
    pub fn send_buffer(&mut self, bytes: u32) -> &mut Self {
        self.send_buffer = bytes.clamp(4096, MAX_RX_SIZE);
        self
    }

    /// How long connecting may take, from the first address lookup to the peer's offer of memory. Default 5 s.
    pub fn connect_timeout(&mut self, limit: Duration) -> &mut Self {
        self.connect_timeout = limit;
        self
    }

    /// How long a listener gives a connected peer to offer its memory. Default 10 s.
    pub fn handshake_timeout(&mut self, limit: Duration) -> &mut Self {
        self.handshake_timeout = limit;
        self
    }

    /// How long closing waits until the peer's device has acknowledged what was written. Default 5 s.
    pub fn close_timeout(&mut self, limit: Duration) -> &mut Self {
        self.close_timeout = limit;
        self
    }

    /// How long nothing at all may arrive from the peer, keepalives included. Default: for ever. On an accepted
    /// connection this ends idle clients; on a connected one it finds a dead server, if it is at least three of the
    /// server's keepalive periods.
    pub fn idle_timeout(&mut self, limit: Option<Duration>) -> &mut Self {
        self.idle_timeout = limit;
        self
    }

    /// Period of keepalives. Default: every 3 s on accepted connections (as Valkey does), none on others.
    pub fn keepalive(&mut self, period: Option<Duration>) -> &mut Self {
        self.keepalive = period.map_or(Keepalive::Never, Keepalive::Every);
        self
    }

    /// Uses this RDMA device or fails. Default: the one that the route leads to.
    pub fn device(&mut self, name: impl Into<String>) -> &mut Self {
        self.device = Some(name.into());
        self
    }

    pub(crate) fn connect_limit(&self) -> Duration {
        self.connect_timeout
    }

    pub(crate) fn windows(&self) -> (u32, u32) {
        (self.rx_buffers, self.rx_size)
    }

    pub(crate) fn send_buffer_len(&self) -> u32 {
        self.send_buffer
    }

    /// What these knobs ask of a device, for [`device::open`](crate::device::open) and
    /// [`device::listen`](crate::device::listen).
    pub fn endpoint_options(&self) -> EndpointOptions {
        EndpointOptions {
            send_depth: QUEUE_DEPTH,
            receive_depth: QUEUE_DEPTH,
            max_inline: MAX_INLINE,
            resolve_timeout: self.connect_timeout,
            device: self.device.clone(),
        }
    }

    pub(crate) fn protocol(&self, role: proto::Role) -> proto::Config {
        let mut config = proto::Config::new(role);
        config.handshake_timeout = match role {
            proto::Role::Client => self.connect_timeout,
            proto::Role::Server => self.handshake_timeout,
        };
        config.close_timeout = self.close_timeout;
        config.idle_timeout = self.idle_timeout;
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

/// Receives that the protocol's page asks both sides to post, and as many sends
/// (valkey `src/rdma.c`, `VALKEY_RDMA_MAX_WQE`).
pub(crate) const QUEUE_DEPTH: u32 = 1024;

/// Fills a 256-byte work queue entry of the common adapters together with the request's header.
const MAX_INLINE: u32 = 220;
