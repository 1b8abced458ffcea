//! [`Rally`]: an end that answers every message with one.

use valkey_rdma_proto::work::{Outcome, SendOp, WrId};

use super::super::device_peer::{Peer, RECEIVES};

/// One end. How it waits is left to the test.
pub(super) struct Rally {
    pub(super) peer: Peer,
    rounds: u32,
    /// 1 for the end that begins.
    ahead: u32,
    received: u32,
    sent: u32,
}

impl Rally {
    pub(super) fn new(peer: Peer, rounds: u32, serves: bool) -> Self {
        Self { peer, rounds, ahead: serves.into(), received: 0, sent: 0 }
    }

    /// Sends a message if it is due. `false` once all have come.
    pub(super) fn goes_on(&mut self) -> bool {
        if self.received >= self.rounds {
            return false;
        }
        if self.sent < self.received + self.ahead {
            self.send(self.sent.is_multiple_of(8));
        }
        true
    }

    fn send(&mut self, signalled: bool) {
        let mut request = self.peer.request(self.sent.into(), 0, 1, SendOp::Send);
        request.signalled = signalled;
        self.peer.post(&[request]);
        self.sent += 1;
    }

    /// Takes what has completed. Returns whether anything has.
    pub(super) fn take(&mut self) -> bool {
        let found = self.peer.completed();
        for completion in &found {
            if let Outcome::Received { .. } = completion.outcome {
                let slot = self.received % RECEIVES;
                assert_eq!(completion.wr_id, WrId::receive(slot));
                self.peer.post_receives(slot..slot + 1);
                self.received += 1;
            }
        }
        !found.is_empty()
    }

    /// Answers the last message.
    pub(super) fn end(mut self) -> Peer {
        if self.sent < self.rounds {
            self.send(true);
        }
        self.peer
    }
}
