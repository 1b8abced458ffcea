//! One connection's state.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use foldhash::HashMap;
use tokio::time::Instant;
use valkey_rdma_transport::Monitor;

use valkey_rdma_server::Command;
use valkey_rdma_server::Pusher;
use valkey_rdma_server::{Peer, Protocol, Reply, Transport};

/// Clients by number.
pub(super) type Clients = HashMap<u64, Client>;

/// One connection.
pub(super) struct Client {
    pub(super) id: u64,
    pub(super) pusher: Pusher,
    pub(super) addr: SocketAddr,
    pub(super) local_addr: SocketAddr,
    pub(super) transport: Transport,
    pub(super) rdma: Option<Monitor>,
    pub(super) protocol: Protocol,
    pub(super) database: usize,
    pub(super) authenticated: bool,
    /// Set by `ASKING`, cleared by the next command.
    pub(super) asking: bool,
    /// Set by `READONLY`.
    pub(super) readonly: bool,
    pub(super) name: Bytes,
    pub(super) library: Bytes,
    pub(super) library_version: Bytes,
    pub(super) no_evict: bool,
    pub(super) no_touch: bool,
    pub(super) replies: Replies,
    pub(super) transaction: Option<Transaction>,
    /// Keys watched, by database, and whether one of them has changed since.
    pub(super) watched: BTreeSet<(usize, Bytes)>,
    pub(super) watched_changed: bool,
    pub(super) tracking: bool,
    /// Channels, patterns and shard channels subscribed to.
    pub(super) subscribed: [BTreeSet<Bytes>; 3],
    pub(super) blocked: bool,
    /// The connection is being closed: none of its commands run.
    pub(super) killed: bool,
    pub(super) connected_at: Instant,
    pub(super) last_seen: Instant,
    pub(super) last_command: &'static str,
    pub(super) commands: u64,
}

/// Commands between `MULTI` and `EXEC`.
pub(super) struct Transaction {
    pub(super) commands: Vec<Command>,
    /// One of them could not be queued.
    pub(super) aborted: bool,
}

/// What `CLIENT REPLY` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replies {
    On,
    Off,
    /// `SKIP`: the next command has no reply.
    SkipNext,
    /// The command after `SKIP`: it has no reply.
    Skip,
}

impl Replies {
    /// The reply, if it may be sent.
    pub(super) fn let_through(&mut self, reply: Reply) -> Reply {
        *self = match self {
            Self::On => return reply,
            Self::Off => Self::Off,
            Self::SkipNext => Self::Skip,
            Self::Skip => Self::On,
        };
        Reply::Sequence(Vec::new())
    }
}

impl Client {
    pub(super) fn new(id: u64, peer: &Peer, authenticated: bool) -> Self {
        Self {
            id,
            pusher: peer.pusher(),
            addr: peer.addr(),
            local_addr: peer.local_addr(),
            transport: peer.transport(),
            rdma: peer.rdma().cloned(),
            protocol: Protocol::Resp2,
            database: 0,
            authenticated,
            asking: false,
            readonly: false,
            name: Bytes::new(),
            library: Bytes::new(),
            library_version: Bytes::new(),
            no_evict: false,
            no_touch: false,
            replies: Replies::On,
            transaction: None,
            watched: BTreeSet::new(),
            watched_changed: false,
            tracking: false,
            subscribed: Default::default(),
            blocked: false,
            killed: false,
            connected_at: Instant::now(),
            last_seen: Instant::now(),
            last_command: "NULL",
            commands: 0,
        }
    }

    /// Resets the client to its first state. As in Valkey, the library's name and version stay: they belong to the connection.
    pub(super) fn reset(&mut self, authenticated: bool) {
        self.protocol = Protocol::Resp2;
        self.database = 0;
        self.authenticated = authenticated;
        self.asking = false;
        self.readonly = false;
        self.name = Bytes::new();
        self.no_evict = false;
        self.no_touch = false;
        self.replies = Replies::On;
        self.transaction = None;
        self.tracking = false;
    }

    /// How many channels and patterns it listens to, shard channels not counted.
    pub(super) fn subscriptions(&self) -> usize {
        self.subscribed[0].len() + self.subscribed[1].len()
    }

    pub(super) fn listens(&self) -> bool {
        self.subscribed.iter().any(|channels| !channels.is_empty())
    }

    /// The line of `CLIENT LIST`: the fields of Valkey's that mean something here, then what the connection runs on.
    pub(super) fn describe(&self) -> String {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let mut flags = String::new();
        flags.extend(self.blocked.then_some('b'));
        flags.extend(self.watched_changed.then_some('d'));
        flags.extend(self.no_evict.then_some('e'));
        flags.extend(self.listens().then_some('P'));
        flags.extend(self.tracking.then_some('t'));
        flags.extend(self.no_touch.then_some('T'));
        flags.extend(self.transaction.is_some().then_some('x'));
        flags.extend(flags.is_empty().then_some('N'));
        let multi = self.transaction.as_ref().map_or(-1, |transaction| transaction.commands.len() as i64);
        let redirect = if self.tracking { 0 } else { -1 };
        let mut line = format!(
            "id={} addr={} laddr={} name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={multi} \
             watch={} user=default redir={redirect} resp={} lib-name={} lib-ver={} cmd={} tot-cmds={} transport={}",
            self.id,
            self.addr,
            self.local_addr,
            text(&self.name),
            self.connected_at.elapsed().as_secs(),
            self.last_seen.elapsed().as_secs(),
            self.database,
            self.subscribed[0].len(),
            self.subscribed[1].len(),
            self.subscribed[2].len(),
            self.watched.len(),
            self.protocol.version(),
            text(&self.library),
            text(&self.library_version),
            self.last_command,
            self.commands,
            self.transport,
        );
        if let Some(rdma) = &self.rdma {
            let (info, stats) = (rdma.info(), rdma.stats());
            line.push_str(&format!(
                " window={} peer-window={} pinned={} poll={}",
                info.window, info.peer_window, stats.pinned_bytes, info.polling
            ));
        }
        line.push('\n');
        line
    }
}
