//! The length of the send buffer: a short part from the start, and a long one in its place while large values pass.
//!
//! Most connections never have more than 64 KiB to send at once, and pinned memory is scarce. The short part stays registered for the
//! life of the connection. A connection that has been quiet gives the long part back, once the device has acknowledged every byte: no
//! work request uses it then.

use std::time::Duration;

use valkey_rdma_proto::{self as proto, DeliveryReport};

use super::state::{ConnectionState, Look};

impl ConnectionState {
    /// Lets the send buffer grow if `len` bytes have no room in it, even after all completions.
    pub(super) fn grow_for(&mut self, len: usize) {
        // Called before every write; usually there is nothing to do.
        if !self.device.can_grow() || self.core.room() as usize >= len || !self.can_write() {
            return;
        }
        while (self.core.room() as usize) < len && self.poll_cq() > 0 {
            self.flush_work();
        }
        if (self.core.room() as usize) < len && self.can_write() {
            match self.device.grow_send_buffer() {
                Some(region) => {
                    self.core.replace_send_buffer(region.id, region.len);
                    self.look = Some(Look { at: self.now() + QUIET, written: self.written() });
                }
                None => self.max_reservation = self.core.send_buffer() as usize / 2,
            }
        }
    }

    /// Whether bytes are taken, now or as soon as there is room.
    fn can_write(&self) -> bool {
        self.core.agreed().is_some() && !self.core.is_closing() && self.close_error.is_none()
    }

    /// If the long part is due for a look, and nothing was written since the last one: gives it back. If the last bytes are not acknowledged,
    /// asks for that, and the next look gives it back.
    ///
    /// A task that waits for room has had its wake-up: all of the long part is free. It lets the send buffer grow again.
    pub(super) fn look_at_send_buffer(&mut self, now: proto::Instant) {
        let Some(last) = self.look.filter(|look| look.at <= now) else { return };
        self.look = None;
        if !self.can_write() {
            return;
        }
        let written = self.written();
        if written == last.written {
            if self.core.delivery_report().delivered == written {
                if let Some(short) = self.device.shrink_send_buffer() {
                    self.core.replace_send_buffer(short.id, short.len);
                }
                return;
            }
            self.core.request_acknowledgement();
            self.flush_work();
        }
        self.look = Some(Look { at: now + QUIET, written });
    }

    /// Bytes that the application has written so far.
    fn written(&self) -> u64 {
        let DeliveryReport { delivered, unknown, unsent } = self.core.delivery_report();
        delivered + unknown + unsent
    }
}

/// How long nothing is written before the long part is given back; two to three times as long, as it is looked at only that often.
const QUIET: Duration = Duration::from_secs(10);
