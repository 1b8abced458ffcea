//! [`Clients`]: the local clients there are, for CLIENT LIST, CLIENT KILL and limits.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;
use tracing::debug;
use valkey_rdma_resp::{Output, Protocol, words};
use valkey_rdma_transport::sync::lock;
use valkey_rdma_transport::tls::TlsInfo;

use crate::session::inbox::{End, Inbox};

/// All local clients, by number.
#[derive(Default)]
pub(crate) struct Clients {
    known: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Those that have closed their side, and wait for replies.
    left: Mutex<BTreeMap<u64, Arc<Client>>>,
    last: AtomicU64,
}

/// What is known of a local client from outside of its task.
pub(crate) struct Client {
    pub(crate) id: u64,
    /// The address of its server. Listeners with different options or logins may lead to the same server, whose rules then say what
    /// a client may do with others.
    pub(crate) server: Arc<str>,
    pub(crate) peer: String,
    pub(crate) local: String,
    pub(crate) since: Instant,
    pub(crate) inbox: Arc<Inbox>,
    /// Bytes of messages of a cluster that it has not read.
    pub(crate) unread_messages: AtomicUsize,
    place: watch::Sender<Place>,
    pub(crate) commands: AtomicU64,
    /// When its last command came, in milliseconds since `since`.
    active: AtomicU64,
    subscribed: AtomicBool,
    blocked: AtomicBool,
    /// The name of its last command, in lower case.
    last_command: Mutex<LastCommand>,
    details: Mutex<Details>,
    /// The version of TLS, once there is an encrypted connection.
    tls: OnceLock<&'static str>,
}

/// Where the commands of a client run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Shared,
    /// On a private connection, which has this number at the server.
    Private(u64),
    /// The client will never have a private connection: its share mode has none, or it has gone.
    Nowhere,
}

/// A client that invalidations of another client are redirected to. It keeps its private connection until this is dropped.
pub(crate) struct Target(Arc<Client>);

/// The clients of a server.
pub(crate) struct Load {
    pub(crate) clients: usize,
    /// How many of them use TLS.
    pub(crate) encrypted: usize,
    /// Bytes of replies and messages that they have not read.
    pub(crate) unread: usize,
}

/// What a client says about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Details {
    pub(crate) name: String,
    pub(crate) lib_name: String,
    pub(crate) lib_ver: String,
    pub(crate) user: String,
    pub(crate) database: u32,
    pub(crate) protocol: Protocol,
}

/// Removes a client from the list when it is dropped.
pub(crate) struct Registered {
    clients: Arc<Clients>,
    client: Arc<Client>,
}

impl Clients {
    pub(crate) fn len(&self) -> usize {
        lock(&self.known).len()
    }

    /// The clients in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        lock(&self.known).values().cloned().collect()
    }

    /// Those of this server: the same one, not only the same address.
    pub(crate) fn of(&self, server: &Arc<str>) -> Vec<Arc<Client>> {
        lock(&self.known).values().filter(|client| Arc::ptr_eq(&client.server, server)).cloned().collect()
    }

    /// What the clients of this server are together.
    pub(crate) fn load(&self, server: &Arc<str>) -> Load {
        let clients = self.of(server);
        let unread =
            |client: &Arc<Client>| client.inbox.unread() + client.unread_messages.load(Ordering::Relaxed);
        Load {
            clients: clients.len(),
            encrypted: clients.iter().filter(|client| client.is_encrypted()).count(),
            unread: clients.iter().map(unread).sum(),
        }
    }

    /// Ends a client that has closed its side, and for which no reply waits: the server may never answer it. `false` if there is none.
    pub(crate) fn end_one_that_has_left(&self) -> bool {
        lock(&self.left).values().any(|client| client.inbox.end_if_unanswered())
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<Client>> {
        lock(&self.known).get(&id).cloned()
    }
}

impl Registered {
    /// Returns when the client was killed, or the gateway stops.
    pub(super) async fn ended(&self) {
        poll_fn(|cx| {
            let found = self.inbox.poll_take(cx, &mut Output::default());
            if found.end.is_some() || found.stop { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Notes that the client has closed its side: it sends no more, and may have gone.
    pub(super) fn leave(&self) {
        self.inbox.leave();
        lock(&self.clients.left).insert(self.id, self.client.clone());
    }

    /// Nothing is owed to the client any more: it does not give its place to another one.
    pub(super) fn keep_place(&self) {
        lock(&self.clients.left).remove(&self.id);
    }

    /// Lists a new client. Its unread replies are counted in `unread` too.
    pub(crate) fn new(
        clients: Arc<Clients>,
        unread: Arc<AtomicUsize>,
        server: Arc<str>,
        peer: String,
        local: String,
        details: Details,
        place: Place,
    ) -> Self {
        let id = clients.last.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client {
            id,
            server,
            peer,
            local,
            since: Instant::now(),
            inbox: Arc::new(Inbox::new(unread)),
            unread_messages: AtomicUsize::new(0),
            place: watch::Sender::new(place),
            commands: AtomicU64::new(0),
            active: AtomicU64::new(0),
            subscribed: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            last_command: Mutex::default(),
            details: Mutex::new(details),
            tls: OnceLock::new(),
        });
        debug!(id, peer = client.peer, local = client.local, "a client has connected");
        lock(&clients.known).insert(id, client.clone());
        Self { clients, client }
    }
}

impl std::ops::Deref for Registered {
    type Target = Arc<Client>;

    fn deref(&self) -> &Arc<Client> {
        &self.client
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        debug!(id = self.client.id, "a client has left");
        lock(&self.clients.known).remove(&self.client.id);
        lock(&self.clients.left).remove(&self.client.id);
        self.client.inbox.end(End::Gone);
        self.client.set_place(Place::Nowhere);
    }
}

impl Target {
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.0.inbox.unpin();
    }
}

/// The name of a client's last command.
#[derive(Debug, Default)]
struct LastCommand {
    /// The command's bytes up to the end of its name. Most clients send the same command again, which costs a comparison then.
    head: Vec<u8>,
    shown: String,
}

impl LastCommand {
    /// Takes the name of a command, or of the first part of one.
    fn set(&mut self, command: &[u8]) {
        if !self.head.is_empty() && command.starts_with(&self.head) {
            return;
        }
        self.head.clear();
        self.shown.clear();
        let mut rest = words(command);
        let Some(name) = rest.next().filter(|name| name.len() <= LONGEST_NAME && name.is_ascii()) else {
            return;
        };
        // A name from a client is shown as one word.
        let shown = name.iter().filter(|byte| byte.is_ascii_graphic());
        self.shown.extend(shown.map(|byte| char::from(byte.to_ascii_lowercase())));
        // It follows two lines, which have the number of words and its length.
        let line_ends = command.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let begin = line_ends.map(|(at, _)| at + 1).nth(1);
        self.head
            .extend_from_slice(begin.and_then(|begin| command.get(..begin + name.len())).unwrap_or_default());
    }
}

impl Client {
    pub(crate) fn details(&self) -> MutexGuard<'_, Details> {
        lock(&self.details)
    }

    /// Counts commands, of which the last is given, or the first part of it.
    pub(crate) fn count(&self, commands: u32, last: &[u8], now: Instant) {
        lock(&self.last_command).set(last);
        self.commands.fetch_add(commands.into(), Ordering::Relaxed);
        let age = now.saturating_duration_since(self.since).as_millis();
        self.active.store(u64::try_from(age).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The server's number of the private connection; 0 without one.
    pub(crate) fn upstream_id(&self) -> u64 {
        match *self.place.borrow() {
            Place::Private(id) => id,
            Place::Shared | Place::Nowhere => 0,
        }
    }

    /// Whether its commands run on a private connection.
    pub(crate) fn is_private(&self) -> bool {
        matches!(*self.place.borrow(), Place::Private(_))
    }

    pub(crate) fn set_place(&self, place: Place) {
        self.place.send_replace(place);
    }

    /// Makes the client the target of another client's invalidations: moves it to a private connection, and returns the server's number
    /// of that. `None` if the client will not have one, or is too busy to move.
    pub(crate) async fn redirect(self: Arc<Self>) -> Option<(Target, u64)> {
        let mut place = self.place.subscribe();
        // Before the place is read: a client that leaves its private connection looks at this after it has said so.
        self.inbox.pin();
        let target = Target(self);
        let settled = place.wait_for(|place| *place != Place::Shared || target.0.inbox.refuses_pins());
        match *timeout(PATIENCE, settled).await.ok()?.ok()? {
            Place::Private(id) if id > 0 => Some((target, id)),
            _ => None,
        }
    }

    /// There is no private connection for this client now: clients that wait for it get none.
    pub(crate) fn refuse_redirects(&self) {
        self.inbox.refuse_pins();
        self.place.send_modify(|_| {});
    }

    pub(crate) fn set_subscribed(&self, subscribed: bool) {
        self.subscribed.store(subscribed, Ordering::Relaxed);
    }

    pub(crate) fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscribed.load(Ordering::Relaxed)
    }

    /// Notes that the connection is encrypted.
    pub(crate) fn set_tls(&self, tls: &TlsInfo) {
        // It is so from the start to the end.
        let _ = self.tls.set(tls.version);
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.get().is_some()
    }

    /// A line of CLIENT LIST, in Valkey's form.
    pub(crate) fn line(&self) -> String {
        let details = self.details();
        let age = self.since.elapsed();
        let idle = age.as_millis().saturating_sub(self.active.load(Ordering::Relaxed).into()) / 1000;
        let subscribed = u8::from(self.is_subscribed());
        let flags = match (self.is_subscribed(), self.blocked.load(Ordering::Relaxed)) {
            (true, _) => "P",
            (false, true) => "b",
            (false, false) => "N",
        };
        let mut line = format!("id={} addr={} laddr={} fd=0 ", self.id, self.peer, self.local);
        // Writing to a String cannot fail.
        let _ = write!(
            line,
            "name={} age={} idle={idle} flags={flags} capa= db={} sub={subscribed} psub=0 ssub=0 multi=-1 watch=0 {UNKNOWN} ",
            details.name,
            age.as_secs(),
            details.database
        );
        let _ = write!(
            line,
            "user={} redir=-1 resp={} lib-name={} lib-ver={} tot-cmds={} upstream-id={} tls={} cmd={}",
            details.user,
            details.protocol.version(),
            details.lib_name,
            details.lib_ver,
            self.commands.load(Ordering::Relaxed),
            self.upstream_id(),
            self.tls.get().map_or("no".to_owned(), |version| version.replace(' ', "")),
            lock(&self.last_command).shown
        );
        line
    }
}

/// How long another client may take to move to a private connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than the name of any command.
const LONGEST_NAME: usize = 32;

/// Fields of CLIENT LIST that programs look for, and that mean nothing here.
const UNKNOWN: &str =
    "qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::words::encode;

    #[test]
    fn the_last_command_is_shown_by_its_name_and_no_argument_is_kept() {
        let mut last = LastCommand::default();
        for (line, shown) in [
            ("GET a", "get"),
            ("GET b", "get"),
            ("GETS b", "gets"),
            ("GE b", "ge"),
            ("1 2", "1"),
            ("AUTH secret", "auth"),
            ("A\u{7f}B x", "ab"),
            (&format!("{} x", "N".repeat(33)), ""),
            ("GET a", "get"),
        ] {
            let command = encode(line.split(' '));
            last.set(&command);
            assert_eq!(last.shown, shown, "{line}");
            assert!(!last.head.windows(6).any(|word| word == b"secret"));
            assert!(last.head.is_empty() || command.starts_with(&last.head), "{line}");
        }
    }
}
