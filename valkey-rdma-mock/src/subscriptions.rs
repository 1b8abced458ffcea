//! Which clients are subscribed to which channels.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

use crate::client::{Client, Clients};
use crate::glob;
use valkey_rdma_server::Reply;

/// What a subscription names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Plain = 0,
    Pattern = 1,
    Shard = 2,
}

/// Clients by what they subscribed to. Always in step with [`Client::subscribed`].
#[derive(Default)]
pub(super) struct Subscriptions([HashMap<Bytes, BTreeSet<u64>>; 3]);

impl Subscriptions {
    /// `true`: the subscription is new.
    pub(super) fn add(&mut self, kind: Channel, name: &Bytes, client: &mut Client) -> bool {
        let name = Bytes::copy_from_slice(name);
        self.0[kind as usize].entry(name.clone()).or_default().insert(client.id);
        client.subscribed[kind as usize].insert(name)
    }

    pub(super) fn remove(&mut self, kind: Channel, name: &Bytes, client: &mut Client) {
        client.subscribed[kind as usize].remove(name);
        if let Some(listeners) = self.0[kind as usize].get_mut(name) {
            listeners.remove(&client.id);
            if listeners.is_empty() {
                self.0[kind as usize].remove(name);
            }
        }
    }

    pub(super) fn remove_all(&mut self, client: &mut Client) {
        for kind in [Channel::Plain, Channel::Pattern, Channel::Shard] {
            while let Some(name) = client.subscribed[kind as usize].first().cloned() {
                self.remove(kind, &name, client);
            }
        }
    }

    /// Ends all subscriptions to a shard channel, and notifies the subscribers.
    pub(super) fn end(&mut self, channel: &Bytes, clients: &mut Clients) {
        for id in self.0[Channel::Shard as usize].remove(channel).unwrap_or_default() {
            let Some(client) = clients.get_mut(&id) else { continue };
            client.subscribed[Channel::Shard as usize].remove(channel);
            let left = client.subscribed[Channel::Shard as usize].len();
            let left = Reply::Integer(i64::try_from(left).unwrap_or(i64::MAX));
            client.pusher.push(Reply::Push(vec![
                Reply::bulk("sunsubscribe"),
                Reply::Bulk(channel.clone()),
                left,
            ]));
        }
    }

    /// Sends a message to all subscribers, and returns their number.
    pub(super) fn publish(
        &self,
        kind: Channel,
        channel: &Bytes,
        message: &Bytes,
        clients: &Clients,
    ) -> usize {
        // Messages wait for their readers, so they must not pin the publisher's read buffer.
        let (channel, message) = (crate::store::keep(channel), crate::store::keep(message));
        let mut receivers = 0;
        let mut send = |ids: &BTreeSet<u64>, parts: &[&Bytes], name: &'static str| {
            for client in ids.iter().filter_map(|id| clients.get(id)) {
                let parts = parts.iter().map(|part| Reply::Bulk((*part).clone()));
                client.pusher.push(Reply::Push(std::iter::once(Reply::bulk(name)).chain(parts).collect()));
                receivers += 1;
            }
        };
        if let Some(ids) = self.0[kind as usize].get(&channel) {
            send(ids, &[&channel, &message], if kind == Channel::Shard { "smessage" } else { "message" });
        }
        if kind == Channel::Plain {
            for (pattern, ids) in &self.0[Channel::Pattern as usize] {
                if glob::matches_exactly(pattern, &channel) {
                    send(ids, &[pattern, &channel, &message], "pmessage");
                }
            }
        }
        receivers
    }

    /// Names with at least one subscriber.
    pub(super) fn names(&self, kind: Channel) -> impl Iterator<Item = &Bytes> {
        self.0[kind as usize].keys()
    }

    pub(super) fn listeners(&self, kind: Channel, name: &[u8]) -> usize {
        self.0[kind as usize].get(name).map_or(0, BTreeSet::len)
    }
}
