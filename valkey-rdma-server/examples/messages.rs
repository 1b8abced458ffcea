//! A server with users of its own, messages, a command that waits, INFO, and an orderly end. Run `cargo run --example messages` and,
//! elsewhere, `valkey-cli -p 6381 --user ada --pass lovelace` with `SUBSCRIBE news`, `NEXT news`, `PUBLISH news hello`, `INFO`.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;
use valkey_rdma_server::{Command, Handler, Peer, Pusher, Reply, Server, answer_basic};

#[derive(Default)]
pub(crate) struct Messages(Mutex<HashMap<Bytes, Channel>>);

#[derive(Default)]
struct Channel {
    /// By the number of their connections.
    subscribers: HashMap<u64, Pusher>,
    /// The latest message.
    latest: watch::Sender<Bytes>,
}

#[derive(Default)]
pub(crate) struct Session {
    is_logged_in: bool,
}

impl Handler for Messages {
    type Session = Session;

    fn session(&self, _peer: &Peer) -> Session {
        Session::default()
    }

    async fn call(&self, peer: &mut Peer, _session: &mut Session, command: Command) -> Result<Reply, Reply> {
        if command.is("SUBSCRIBE") {
            let [_] = command.exactly()?;
            let name = kept(&command)?;
            let mut channels = self.channels();
            channel(&mut channels, &name)?.subscribers.insert(peer.id(), peer.pusher());
            // It waits for messages and sends nothing.
            peer.set_never_idle(true);
            let subscribed = channels.values().filter(|one| one.subscribers.contains_key(&peer.id())).count();
            let words = [Reply::bulk("subscribe"), Reply::Bulk(name), Reply::from(subscribed as i64)];
            return Ok(Reply::Push(words.into()));
        }
        if command.is("PUBLISH") {
            let [_, text] = command.exactly()?;
            return Ok(Reply::from(self.publish(kept(&command)?, text)));
        }
        if command.is("NEXT") {
            let [_] = command.exactly()?;
            let mut latest = channel(&mut self.channels(), &kept(&command)?)?.latest.subscribe();
            return tokio::select! {
                _ = latest.changed() => Ok(Reply::Bulk(latest.borrow().clone())),
                () = peer.stopping() => Err(Reply::error("UNBLOCKED the server is shutting down")),
            };
        }
        if command.is("INFO") {
            return Ok(Reply::bulk(format!("# Messages\r\nchannels:{}\r\n", self.channels().len())));
        }
        Err(command.unknown())
    }

    /// The login, in each of its two forms. Nothing else is answered before.
    fn basics(&self, peer: &mut Peer, session: &mut Session, command: &Command) -> Option<Reply> {
        let (login, rest) = take_login(command);
        if let Some([user, password]) = login {
            if (&user[..], &password[..]) != (b"ada", b"lovelace") {
                return Some(Reply::error("WRONGPASS invalid username-password pair or user is disabled."));
            }
            let reply = if command.is("AUTH") { Some(Reply::OK) } else { answer_basic(peer, &rest) };
            session.is_logged_in = !matches!(reply, Some(Reply::Error(_)));
            return reply;
        }
        if session.is_logged_in || command.is("QUIT") || command.is("RESET") {
            return answer_basic(peer, &rest);
        }
        Some(Reply::error("NOAUTH Authentication required."))
    }

    fn reset(&self, peer: &mut Peer, session: &mut Session) {
        self.channels().values_mut().for_each(|channel| drop(channel.subscribers.remove(&peer.id())));
        *session = Session::default();
    }

    /// Until the login, a client may use little memory.
    fn trusts(&self, session: &Session) -> bool {
        session.is_logged_in
    }
}

impl Messages {
    /// The map is valid after every statement, so a panic elsewhere does no harm.
    fn channels(&self) -> MutexGuard<'_, HashMap<Bytes, Channel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message to those who subscribe to a channel or wait for its next message. Returns how many there are.
    fn publish(&self, name: Bytes, text: &Bytes) -> i64 {
        let mut channels = self.channels();
        let Some(channel) = channels.get_mut(&name) else { return 0 };
        let message = [&b"message"[..], &name, text].map(|word| Reply::bulk(word.to_vec()));
        // A connection that has ended takes none.
        channel.subscribers.retain(|_, pusher| pusher.push(Reply::Push(message.to_vec())));
        let waiting = channel.latest.receiver_count();
        channel.latest.send_replace(Bytes::copy_from_slice(text));
        let count = channel.subscribers.len() + waiting;
        if channel.subscribers.is_empty() {
            // Commands that wait have their message, although the channel is gone.
            channels.remove(&name);
        }
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

/// A channel, which is made if it is not there. As names come from clients, there is a most.
fn channel<'a>(channels: &'a mut HashMap<Bytes, Channel>, name: &Bytes) -> Result<&'a mut Channel, Reply> {
    if channels.len() >= MOST_CHANNELS && !channels.contains_key(name) {
        channels.retain(|_, one| !one.subscribers.is_empty() || one.latest.receiver_count() > 0);
        if channels.len() >= MOST_CHANNELS {
            return Err(Reply::error("ERR there are too many channels"));
        }
    }
    Ok(channels.entry(name.clone()).or_default())
}

const MOST_CHANNELS: usize = 1000;

/// The first argument, to be stored.
fn kept(command: &Command) -> Result<Bytes, Reply> {
    command.keep(0).ok_or_else(|| command.wrong_arity())
}

/// User and password of `AUTH [user] password` or `HELLO 3 AUTH user password ...`, and the command without them.
fn take_login(command: &Command) -> (Option<[Bytes; 2]>, Command) {
    match command.args() {
        [password] if command.is("AUTH") => {
            (Some([Bytes::from_static(b"default"), password.clone()]), command.clone())
        }
        [user, password] if command.is("AUTH") => (Some([user.clone(), password.clone()]), command.clone()),
        [version, auth, user, password, rest @ ..]
            if command.is("HELLO") && auth.eq_ignore_ascii_case(b"AUTH") =>
        {
            let others = std::iter::once(version).chain(rest).cloned();
            (Some([user.clone(), password.clone()]), Command::new("HELLO", others))
        }
        _ => (None, command.clone()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::builder(Messages::default()).listen("valkey://127.0.0.1:6381").start().await?;
    // Ends commands that wait, delivers the last replies, then returns.
    server.run_until(tokio::signal::ctrl_c()).await.ok_or("no listener is left")??;
    Ok(())
}
