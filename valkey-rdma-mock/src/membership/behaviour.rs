//! How one node misbehaves on purpose, and how often each command was called there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::watch;
use valkey_rdma_server::Reply;
use valkey_rdma_transport::sync::lock;

use super::topology::Topology;

/// The script of one node. Everything may change while the node serves.
pub(crate) struct Behaviour {
    script: Mutex<Script>,
    frozen: watch::Sender<bool>,
}

#[derive(Default)]
struct Script {
    calls: BTreeMap<String, u64>,
    /// Replies instead of running a command, by the command's full name.
    answers: BTreeMap<String, Answer>,
    /// Same for all commands with keys.
    keyed: Option<Answer>,
    /// Every command with a key gets `MOVED` to this node.
    moves_to: Option<usize>,
    /// An old topology, which the node takes for the current one.
    view: Option<Arc<Topology>>,
    /// What reaches the node while it is frozen.
    unheard: Vec<Publication>,
}

/// Replies that a test has prepared.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Always(Reply),
    /// Each once, then the command runs again.
    Once(VecDeque<Reply>),
}

/// A message published on one node.
#[derive(Clone)]
pub(crate) struct Publication {
    /// A shard channel: only the nodes of the shard deliver it.
    pub(crate) sharded: bool,
    pub(crate) channel: Bytes,
    pub(crate) message: Bytes,
}

impl Answer {
    fn next(&mut self) -> Option<Reply> {
        match self {
            Self::Always(reply) => Some(reply.clone()),
            Self::Once(replies) => replies.pop_front(),
        }
    }
}

impl Behaviour {
    pub(crate) fn new() -> Self {
        Self { script: Mutex::default(), frozen: watch::Sender::new(false) }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        lock(&self.script)
    }

    /// Counts a call. Returns the prepared reply, if there is one.
    pub(crate) fn called(&self, name: &str, has_keys: bool) -> Option<Reply> {
        let mut script = self.script();
        match script.calls.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                script.calls.insert(name.to_owned(), 1);
            }
        }
        if let Some(reply) = script.answers.get_mut(name).and_then(Answer::next) {
            return Some(reply);
        }
        script.keyed.as_mut().filter(|_| has_keys).and_then(Answer::next)
    }

    pub(crate) fn calls(&self, name: &str) -> u64 {
        self.script().calls.get(name).copied().unwrap_or(0)
    }

    /// Answers a command with this, or runs it again.
    pub(crate) fn answer(&self, name: &str, answer: Option<Answer>) {
        let mut script = self.script();
        match answer {
            Some(answer) => script.answers.insert(name.to_ascii_lowercase(), answer),
            None => script.answers.remove(&name.to_ascii_lowercase()),
        };
    }

    /// Same as [`answer`](Self::answer) for all commands with keys.
    pub(crate) fn answer_keyed(&self, answer: Option<Answer>) {
        self.script().keyed = answer;
    }

    pub(crate) fn move_all_to(&self, node: Option<usize>) {
        self.script().moves_to = node;
    }

    pub(crate) fn moves_to(&self) -> Option<usize> {
        self.script().moves_to
    }

    pub(crate) fn set_view(&self, view: Option<Arc<Topology>>) {
        self.script().view = view;
    }

    pub(crate) fn view(&self) -> Option<Arc<Topology>> {
        self.script().view.clone()
    }

    pub(crate) fn freeze(&self) {
        let _script = self.script();
        self.frozen.send_replace(true);
    }

    /// Ends the freezing. Returns the messages that came meanwhile.
    pub(crate) fn thaw(&self) -> Vec<Publication> {
        let mut script = self.script();
        self.frozen.send_replace(false);
        std::mem::take(&mut script.unheard)
    }

    /// Keeps a message if the node is frozen. Returns false if the node receives it now.
    pub(crate) fn miss(&self, publication: &Publication) -> bool {
        let mut script = self.script();
        let frozen = *self.frozen.borrow();
        if frozen {
            script.unheard.push(publication.clone());
        }
        frozen
    }

    /// Completes when the node is not frozen.
    pub(crate) async fn thawed(&self) {
        if *self.frozen.borrow() {
            // The sender lives as long as `self`.
            let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
        }
    }
}
