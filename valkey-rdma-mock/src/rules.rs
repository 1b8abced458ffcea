//! [`Rule`]: a reply, an error or a lost connection that a test prepares for a command.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use valkey_rdma_server::{Command, Reply};
use valkey_rdma_transport::sync::lock;

/// What the mock does with a command instead of running it, or before: [`Mock::on`](crate::Mock::on). It holds from the moment it is
/// made, and each method changes it. Without any of them the command runs, and is counted.
///
/// If several rules match a command, the first one made decides, until it is [used up](Self::times).
#[derive(Clone, Debug)]
pub struct Rule(Arc<Mutex<Settings>>);

#[derive(Debug)]
struct Settings {
    /// The name, and perhaps a subcommand.
    name: Vec<String>,
    args: Vec<Bytes>,
    delay: Option<Duration>,
    action: Action,
    left: Option<u64>,
    matched: u64,
}

/// What a rule does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The command runs.
    Run,
    Reply(Reply),
    /// The connection ends without a reply.
    Drop,
}

impl Rule {
    /// Matches only commands with this argument, byte for byte. The first `with` compares the first argument after the name, the next
    /// one the second.
    pub fn with(self, arg: impl Into<Bytes>) -> Self {
        self.settings().args.push(arg.into());
        self
    }

    /// Answers with this.
    pub fn reply(self, reply: impl Into<Reply>) -> Self {
        self.settings().action = Action::Reply(reply.into());
        self
    }

    /// Answers with this error: a code, a blank and a text, such as `LOADING wait`.
    pub fn error(self, text: impl Into<String>) -> Self {
        self.reply(Reply::error(text.into()))
    }

    /// Waits before the answer, whichever it is. Later commands of the same connection wait too.
    pub fn delay(self, wait: Duration) -> Self {
        self.settings().delay = Some(wait);
        self
    }

    /// Closes the connection without a reply. A client notices at once over TCP, and after some 100 ms on the emulated device.
    pub fn drop_connection(self) -> Self {
        self.settings().action = Action::Drop;
        self
    }

    /// Holds for `count` commands only.
    pub fn times(self, count: u64) -> Self {
        self.settings().left = Some(count);
        self
    }

    /// How many commands it was applied to.
    pub fn matched(&self) -> u64 {
        self.settings().matched
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        lock(&self.0)
    }
}

impl Settings {
    fn apply(&mut self, command: &Command) -> bool {
        if !self.matches(command) || self.left == Some(0) {
            return false;
        }
        self.left = self.left.map(|left| left - 1);
        self.matched += 1;
        true
    }
}

impl Settings {
    fn matches(&self, command: &Command) -> bool {
        let Some((name, subcommands)) = self.name.split_first() else { return false };
        let (words, args) = (command.args(), &self.args);
        let Some((first, rest)) = words.split_at_checked(subcommands.len()) else { return false };
        command.is(name)
            && subcommands.iter().zip(first).all(|(name, word)| word.eq_ignore_ascii_case(name.as_bytes()))
            && rest.len() >= args.len()
            && args.iter().zip(rest).all(|(expected, arg)| expected == arg)
    }
}

/// The rules of a mock.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// False if there are no rules. Commands then take no lock.
    any: AtomicBool,
    rules: Mutex<Vec<Rule>>,
}

impl Rules {
    pub(crate) fn add(&self, name: &str) -> Rule {
        let settings = Settings {
            name: name.split([' ', '|']).filter(|word| !word.is_empty()).map(str::to_owned).collect(),
            args: Vec::new(),
            delay: None,
            action: Action::Run,
            left: None,
            matched: 0,
        };
        let rule = Rule(Arc::new(Mutex::new(settings)));
        lock(&self.rules).push(rule.clone());
        self.any.store(true, Ordering::Release);
        rule
    }

    pub(crate) fn clear(&self) {
        self.any.store(false, Ordering::Release);
        lock(&self.rules).clear();
    }

    /// What the first rule that matches does, and how long it waits before.
    pub(crate) fn decide(&self, command: &Command) -> Option<(Option<Duration>, Action)> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.rules).iter().find_map(|rule| {
            let mut settings = rule.settings();
            settings.apply(command).then(|| (settings.delay, settings.action.clone()))
        })
    }
}
