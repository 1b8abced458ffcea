//! [`Lane`]: the commands of one local client on their way into a cluster.
//!
//! Batches of a client run one after the other, and a batch is cut where a command concerns several nodes. So what the client has sent
//! first runs first, except that commands of different slots in a batch run at the same time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Instant;

use tokio::time::timeout;
use valkey_rdma_client::cluster::Routing;
use valkey_rdma_client::{Client, ClusterError, Command, CommandClass, Error, Value};
use valkey_rdma_resp::{Protocol, Reply, encode, words};
use valkey_rdma_transport::sync::lock;

use super::failure::{failure, is_refusal};
use super::{Member, answers, joined};
use crate::command::words::commands;
use crate::session::inbox::{End, Inbox};
use crate::upstream::open_error::OpenError;

/// One local client's use of a cluster.
pub(crate) struct Lane(Arc<Inner>);

struct Inner {
    member: Arc<Member>,
    /// Commands without a key go to the node of this one.
    beside: String,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<Batch>,
    /// A task takes batches out.
    is_served: bool,
}

/// Whole commands.
struct Batch {
    inbox: Arc<Inbox>,
    bytes: Vec<u8>,
    commands: u32,
    queued: Instant,
    /// Bytes of all local clients that wait for replies.
    total: Arc<AtomicUsize>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        if std::thread::panicking() {
            self.inbox.end(End::Lost);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.member.note_leaving();
    }
}

impl Lane {
    pub(super) fn new(member: Arc<Member>, number: u64) -> Self {
        Self(Arc::new(Inner { member, beside: number.to_string(), queue: Mutex::default() }))
    }

    /// Queues `commands` whole commands. Their replies go to `inbox`.
    pub(crate) fn submit(&self, inbox: &Arc<Inbox>, bytes: &[u8], commands: u32, now: Instant) {
        inbox.expect(commands);
        let total = self.0.member.core.queued.clone();
        total.fetch_add(bytes.len(), Ordering::Relaxed);
        let mut queue = lock(&self.0.queue);
        queue.batches.push_back(Batch {
            inbox: inbox.clone(),
            bytes: bytes.to_vec(),
            commands,
            queued: now,
            total,
        });
        if !std::mem::replace(&mut queue.is_served, true) {
            tokio::spawn(self.0.clone().run());
        }
    }

    pub(crate) fn is_for_scripts(&self) -> bool {
        self.0.member.key.is_for_scripts()
    }

    /// The client of the library, once it is connected.
    pub(crate) async fn connected(&self) -> Result<Client, OpenError> {
        self.0.member.connected().await
    }
}

impl Inner {
    async fn run(self: Arc<Self>) {
        loop {
            let batch = {
                let mut queue = lock(&self.queue);
                let next = queue.batches.pop_front();
                queue.is_served = next.is_some();
                next
            };
            let Some(batch) = batch else { return };
            if batch.inbox.is_lost() {
                continue;
            }
            match self.member.connected().await {
                Ok(client) => self.serve(&client, &batch).await,
                Err(error) => {
                    error.count_unsent(batch.commands.into(), &self.member.metrics);
                    match error.reply() {
                        Some(reply) => {
                            let replies = reply.repeat(batch.commands as usize);
                            batch.inbox.put(&replies, batch.commands, Instant::now());
                        }
                        None => batch.inbox.end(End::Lost),
                    }
                }
            }
        }
    }

    async fn serve(&self, client: &Client, batch: &Batch) {
        let metrics = &self.member.metrics;
        metrics.request_hop.record(batch.queued, Instant::now(), batch.commands);
        metrics.commands.add(batch.commands.into());
        metrics.batches.add(1);
        let mut together = Vec::new();
        for bytes in commands(&batch.bytes) {
            if batch.inbox.is_lost() {
                return;
            }
            let command = Command::from_args(words(bytes));
            let is_special = answers::is_special(bytes);
            let routing = Routing::of(&command);
            let is_keyless = match routing {
                _ if is_special => None,
                Ok(Routing::Slot(_)) => Some(false),
                Ok(Routing::Any) => Some(true),
                _ => None,
            };
            match is_keyless {
                Some(is_keyless) => {
                    together.push((bytes, command, is_keyless));
                    if together.len() == MOST_TOGETHER {
                        self.send(client, batch, std::mem::take(&mut together)).await;
                    }
                }
                None => {
                    self.send(client, batch, std::mem::take(&mut together)).await;
                    let reply = match routing {
                        _ if is_special => answers::special(&self.member, client, bytes).await,
                        Ok(several @ (Routing::Several | Routing::AllNodes)) => {
                            let all = several == Routing::AllNodes;
                            joined::on_several(&self.member, client, command, all).await
                        }
                        _ => client.command(command).await.map(Reply::from),
                    };
                    self.deliver(batch, [(bytes, reply)]).await;
                }
            }
        }
        self.send(client, batch, together).await;
    }

    /// Sends commands of one slot each, or without a key, in one write to each node.
    async fn send(&self, client: &Client, batch: &Batch, mut together: Vec<(&[u8], Command, bool)>) {
        if together.len() < 2 {
            let Some((bytes, command, is_keyless)) = together.pop() else { return };
            let reply = self.execute(client, command, is_keyless).await;
            return self.deliver(batch, [(bytes, reply.map(Reply::from))]).await;
        }
        let mut pipeline = client.pipeline().keyless_beside(&self.beside);
        let mut all = Vec::with_capacity(together.len());
        for (bytes, command, is_keyless) in together {
            pipeline.push(command);
            all.push((bytes, is_keyless));
        }
        let replies = match pipeline.send().await {
            Ok(replies) => replies,
            // The library refuses one of them, and has sent none.
            Err(_) => {
                let mut replies = Vec::with_capacity(all.len());
                for &(bytes, is_keyless) in &all {
                    let command = Command::from_args(words(bytes));
                    replies.push(self.execute(client, command, is_keyless).await);
                }
                replies
            }
        };
        let replies = replies.into_iter().map(|reply| reply.map(Reply::from));
        self.deliver(batch, all.into_iter().map(|(bytes, _)| bytes).zip(replies)).await;
    }

    async fn execute(&self, client: &Client, command: Command, is_keyless: bool) -> Result<Value, Error> {
        match client.cluster().filter(|_| is_keyless) {
            Some(cluster) => cluster.command_on(cluster.route_beside(&self.beside), command).await,
            None => client.command(command).await,
        }
    }

    /// Takes note of an error about the cluster's state. The library has waited for its end already.
    fn note(&self, error: &Error) {
        if let Some(refusal) = error.server() {
            self.member.standing.note(format!("-{refusal}\r\n").as_bytes(), Instant::now());
        }
    }

    /// Passes replies to the local client. They are kept whether it reads them or not, because it may read nothing before it has sent all:
    /// its own task ends one that does not read. If all clients together leave too many unread, this one gets time to read.
    async fn deliver<'a>(
        &self,
        batch: &Batch,
        replies: impl IntoIterator<Item = (&'a [u8], Result<Reply, Error>)>,
    ) {
        let (metrics, protocol) = (&self.member.metrics, self.member.protocol);
        let mut is_lost = false;
        let replies: Vec<_> = replies
            .into_iter()
            .map_while(|(command, reply)| match reply {
                Ok(reply) => Some(fit(command, reply, protocol)),
                Err(error) => {
                    self.note(&error);
                    if is_refusal(&error) {
                        self.member.note_refusal(command);
                    }
                    let reply = match error.server().filter(|_| is_program(command)) {
                        // The redirections of nodes were followed: this one is the program's answer.
                        Some(answer) => Some(answer.clone().into()),
                        None => failure(&error, metrics),
                    };
                    is_lost = reply.is_none();
                    reply
                }
            })
            .collect();
        let (now, complete) = (Instant::now(), u32::try_from(replies.len()).unwrap_or(u32::MAX));
        metrics.server.record(batch.queued, now, complete);
        let waiting = batch.inbox.put_with(complete, now, |output| {
            replies.iter().for_each(|reply| encode(reply, protocol, output));
        });
        drop(replies);
        if is_lost {
            batch.inbox.end(End::Lost);
        }
        let limits = self.member.core.limits();
        let exceeds = |waiting| limits.exceeds_total(waiting, batch.inbox.total());
        if !exceeds(waiting) {
            return;
        }
        let room = poll_fn(|cx| match exceeds(batch.inbox.poll_waiting(cx)) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        });
        if timeout(limits.slow_reader(), room).await.is_err() {
            batch.inbox.end(End::TooSlow);
        }
    }
}

/// Whether a script, a function or a module may answer a command, with an error that looks like a redirection.
fn is_program(command: &[u8]) -> bool {
    let is_of_module = || {
        let routing = Routing::of(&Command::from_args(words(command)));
        matches!(routing, Err(ClusterError::NoRoute { .. })) && !answers::is_special(command)
    };
    CommandClass::of(words(command)) == CommandClass::RunsScript || is_of_module()
}

/// The library has one null. In RESP2 some commands have a null array instead of a null string.
fn fit(command: &[u8], reply: Reply, protocol: Protocol) -> Reply {
    if reply != Reply::Null || protocol == Protocol::Resp3 {
        return reply;
    }
    let mut words = words(command);
    let name = words.next().unwrap_or_default().to_ascii_uppercase();
    match &name[..] {
        b"LMPOP" | b"ZMPOP" | b"XREAD" | b"XREADGROUP" => Reply::NullArray,
        // Of COUNT 0.
        b"XRANGE" | b"XREVRANGE" => Reply::NullArray,
        b"LPOP" | b"RPOP" if words.nth(1).is_some() => Reply::NullArray,
        // WITHSCORE.
        b"ZRANK" | b"ZREVRANK" if words.nth(2).is_some() => Reply::NullArray,
        _ => Reply::Null,
    }
}

/// The replies of this many commands are kept until the last of them has come.
const MOST_TOGETHER: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::words::encode;

    /// As Valkey answers.
    #[test]
    fn nulls_are_those_of_one_server() {
        for (line, is_array) in [
            ("GET none", false),
            ("LPOP none", false),
            ("LPOP none 2", true),
            ("RPOP none 2", true),
            ("ZRANK none m", false),
            ("ZRANK none m WITHSCORE", true),
            ("zrevrank none m withscore", true),
            ("XRANGE s - + COUNT 0", true),
            ("XREVRANGE s + - COUNT 0", true),
            ("XREAD STREAMS none 0", true),
        ] {
            let command = encode(line.split(' '));
            let resp2 = if is_array { Reply::NullArray } else { Reply::Null };
            assert_eq!(fit(&command, Reply::Null, Protocol::Resp2), resp2, "{line}");
            assert_eq!(fit(&command, Reply::Null, Protocol::Resp3), Reply::Null, "{line}");
            assert_eq!(fit(&command, Reply::OK, Protocol::Resp2), Reply::OK, "{line}");
        }
    }
}
