//! One queue pair with its memory, its receives always posted.

use valkey_rdma_transport::raw::{Access, Outcome, QueuePair, Region, RemoteRegion, Request};
use valkey_rdma_transport::{Polling, TransportError};

use super::message::Window;
use super::options::RECEIVES;
use super::run::{Device, Operation};
use super::work::Wait;

/// One queue pair with its memory.
pub(super) struct Lane {
    pair: QueuePair,
    /// The peer writes and reads here.
    window: Region,
    /// What is sent lies here.
    staging: Region,
    /// Messages land here, and what is read from the peer.
    inbox: Region,
    /// The peer's window.
    remote: RemoteRegion,
    /// The id of the last post that completes. Completions of an earlier run may come late.
    last: u64,
    /// Posts since then, which the send queue holds until a later one completes.
    quiet: u32,
    /// Receives that were used up and are not posted again yet.
    used: u32,
    /// Kept for its memory.
    chain: Vec<Request>,
}

/// What has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The post with this id, and all before it.
    Sent(u64),
    /// A message, or a write that was announced with a number.
    Received(Received),
}

/// What a receive was used up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) len: u32,
    pub(super) imm: Option<u32>,
}

/// The memory of a lane.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Window,
    Inbox,
}

const RECEIVE: u64 = 0;

/// Of messages without a completion of interest, one in this many completes: enough to free the send queue.
const SIGNAL_EVERY: u32 = 32;

impl Lane {
    /// Registers memory for messages of up to `longest` bytes, posts all receives, and waits until the peer is connected.
    pub(super) async fn establish(mut pair: QueuePair, longest: u32) -> Result<Self, TransportError> {
        let window = pair.register(longest, Access::RemoteReadWrite)?;
        let staging = pair.register(longest, Access::Local)?;
        let inbox = pair.register(longest, Access::Local)?;
        pair.post_recvs((0..RECEIVES).map(|_| (RECEIVE, inbox.into())))?;
        pair.establish().await?;
        let remote = RemoteRegion { addr: 0, rkey: 0, len: 0 };
        Ok(Self { pair, window, staging, inbox, remote, last: RECEIVE, quiet: 0, used: 0, chain: Vec::new() })
    }

    /// What the peer needs to know to write and read here.
    pub(super) fn window(&self) -> Window {
        self.window.remote().into()
    }

    /// Writes and reads go to the peer's memory from now on.
    pub(super) fn aim(&mut self, window: Window) {
        self.remote = window.into();
    }

    pub(super) fn set_polling(&mut self, polling: Polling) {
        self.pair.set_polling(polling, std::time::Duration::ZERO);
    }

    pub(super) fn device(&self) -> Device {
        let info = self.pair.device();
        Device { name: info.name, kind: info.kind.to_string(), mtu: info.mtu, software: info.software }
    }

    /// The length of the longest message that there is memory for.
    pub(super) fn longest(&self) -> u32 {
        self.staging.len()
    }

    pub(super) fn max_message(&self) -> u32 {
        self.pair.limits().max_message
    }

    /// Puts bytes where they are sent from.
    pub(super) fn stage(&mut self, bytes: &[u8]) {
        self.pair.copy_in(self.staging, bytes);
    }

    /// The first `size` bytes of a place, as they are now.
    pub(super) fn copy_of(&self, place: Place, size: u32) -> Vec<u8> {
        let region = match place {
            Place::Window => self.window,
            Place::Inbox => self.inbox,
        };
        self.pair.copy_out(region.slice(0..size))
    }

    /// Turns one bit in the middle of what the peer has written.
    pub(super) fn corrupt(&mut self, size: u32) {
        let at = size / 2;
        let byte = self.pair.copy_out(self.window.slice(at..at + 1))[0];
        self.pair.copy_in(self.window.slice(at..at + 1), &[byte ^ 1]);
    }

    /// Posts `count` messages of `size` bytes with one doorbell. The last one completes as [`Event::Sent`] with the id that is
    /// returned, which is greater than all before.
    pub(super) fn post(
        &mut self,
        operation: Operation,
        size: u32,
        count: u32,
    ) -> Result<u64, TransportError> {
        self.last += 1;
        self.quiet = 0;
        self.post_chain(operation, size, count, true)?;
        Ok(self.last)
    }

    /// Posts a message whose completion is of no interest. It completes only if the send queue needs that.
    pub(super) fn post_quietly(&mut self, operation: Operation, size: u32) -> Result<(), TransportError> {
        if self.quiet + 1 < SIGNAL_EVERY {
            self.quiet += 1;
            return self.post_chain(operation, size, 1, false);
        }
        self.post(operation, size, 1).map(drop)
    }

    fn post_chain(
        &mut self,
        operation: Operation,
        size: u32,
        count: u32,
        signalled: bool,
    ) -> Result<(), TransportError> {
        let id = self.last;
        let request = match operation {
            Operation::Send | Operation::Tcp => Request::send(id, self.staging.slice(0..size)),
            Operation::Write => Request::write(id, self.staging.slice(0..size), self.remote),
            Operation::WriteImm => {
                Request::write(id, self.staging.slice(0..size), self.remote).with_imm(size)
            }
            Operation::Read => Request::read(id, self.inbox.slice(0..size), self.remote),
        };
        self.chain.clear();
        let quiet = count - u32::from(signalled);
        self.chain.extend((0..quiet).map(|_| request.unsignalled()));
        if signalled {
            self.chain.push(request);
        }
        self.pair.post_chain(self.chain.drain(..))
    }

    /// Waits for the next completion. Receives that were used up are posted again before: there are enough, and the answer to a
    /// message goes first. `None`: nothing is of interest any more.
    ///
    /// Cancel safe.
    pub(super) async fn next(&mut self, wait: &Wait) -> Result<Option<Event>, TransportError> {
        self.post_receives()?;
        let done = match wait {
            Wait::Task => self.pair.wait().await?,
            Wait::Thread(quota) => loop {
                if quota.is_reached() {
                    return Ok(None);
                }
                if let Some(done) = self.pair.blocking_wait(quota.interrupt())? {
                    break done;
                }
            },
        };
        if done.outcome == Outcome::Sent {
            return Ok(Some(Event::Sent(done.id)));
        }
        self.used += 1;
        Ok(Some(Event::Received(Received { len: done.received_len().unwrap_or(0), imm: done.imm() })))
    }

    fn post_receives(&mut self) -> Result<(), TransportError> {
        match std::mem::take(&mut self.used) {
            0 => Ok(()),
            used => self.pair.post_recvs((0..used).map(|_| (RECEIVE, self.inbox.into()))),
        }
    }

    /// Waits until the last posted message is done. `None`: nothing is of interest any more.
    pub(super) async fn sent(&mut self, wait: &Wait) -> Result<Option<()>, TransportError> {
        while let Some(event) = self.next(wait).await? {
            if event == Event::Sent(self.last) {
                return Ok(Some(()));
            }
        }
        Ok(None)
    }

    /// Waits for a message; what was sent may complete before. `None`: nothing is of interest any more.
    pub(super) async fn received(&mut self, wait: &Wait) -> Result<Option<Received>, TransportError> {
        while let Some(event) = self.next(wait).await? {
            if let Event::Received(received) = event {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use valkey_rdma_transport::DeviceKind;
    use valkey_rdma_transport::raw::{DeviceOptions, Listener};

    use super::super::options::SEND_DEPTH;
    use super::*;

    #[tokio::test]
    async fn messages_without_a_completion_of_interest_never_fill_the_send_queue() {
        let options = DeviceOptions {
            send_depth: SEND_DEPTH,
            receive_depth: RECEIVES,
            read_depth: 1,
            ..DeviceOptions::default()
        };
        let any = ([127, 0, 0, 1], 0).into();
        let mut listener = Listener::bind(DeviceKind::Emulated, any, &options).await.expect("a free port");
        let near = QueuePair::open(DeviceKind::Emulated, listener.local_addr(), &options).await;
        let connect = Lane::establish(near.expect("a queue pair"), 64);
        let accept = async { Lane::establish(listener.incoming().await?, 64).await };
        let (mut near, mut far) = tokio::try_join!(connect, accept).expect("connected");
        let messages = 4 * SEND_DEPTH;
        let ask = async {
            for _ in 0..messages {
                near.post_quietly(Operation::Send, 1)?;
                near.received(&Wait::Task).await?;
            }
            Ok::<_, TransportError>(())
        };
        let answer = async {
            for _ in 0..messages {
                far.received(&Wait::Task).await?;
                far.post_quietly(Operation::Send, 1)?;
            }
            // The last answer leaves while this side waits.
            while far.next(&Wait::Task).await.is_ok() {}
            Ok::<_, TransportError>(())
        };
        tokio::select! {
            asked = ask => asked.expect("room in the send queue"),
            answered = answer => answered.expect("room in the send queue"),
        }
    }
}
