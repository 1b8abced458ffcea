//! [`Session::route`]: where a client's next command goes.

use super::Session;
use crate::command::class::{Class, Local};
use crate::command::direct::Named;
use crate::config::limits::Limits;

/// The four ways of a command.
pub(super) enum Way {
    /// To the connection that clients share: the one for scripts, or that for all else. See [`input`](super::input).
    Shared { script: bool },
    /// To a private connection, until the client has no state: see [`private_mode`](super::private_mode). In front of a cluster, the
    /// gateway keeps the state: see [`cluster_mode`](super::cluster_mode).
    Private(Class),
    /// To no server: the gateway answers it. See [`answers`](super::answers).
    Answer(Local),
    /// To no server: it gets an error. See [`unsent`](super::unsent).
    Refuse(Refusal),
}

/// Why a command gets an error.
pub(super) enum Refusal {
    /// It is part of a transaction that found no connection, or ends that.
    FailedMulti(Class),
    /// Commands of all clients take up more than twice the room there is.
    Overload,
}

impl Session {
    /// The way of the current command. All of it is here, or if `is_long`, its first part. `is_first`: it is not behind others that are
    /// submitted with it.
    pub(super) fn route(&mut self, is_long: bool, is_first: bool, limits: &Limits) -> Way {
        let class = self.class();
        let command = self.reader.current();
        if self.failed_multi.is_some() {
            return Way::Refuse(Refusal::FailedMulti(class));
        }
        match class {
            Class::Ordinary | Class::Script if is_long || command.len() > self.longest(limits) => {
                Way::Private(Class::Alone)
            }
            Class::Ordinary | Class::Script if is_first && self.in_flight.is_overloaded(limits) => {
                Way::Refuse(Refusal::Overload)
            }
            Class::Ordinary => Way::Shared { script: false },
            Class::Script => Way::Shared { script: true },
            Class::Local(local) => Way::Answer(local),
            class @ (Class::Alone | Class::State(_)) => Way::Private(class),
        }
    }

    /// The class of the current command. One of direct transfers that names no memory becomes the server's own command.
    pub(super) fn class(&mut self) -> Class {
        let named = self.direct_prefix.as_ref().and_then(|prefix| Named::of(self.reader.current(), prefix));
        match named {
            Some(Named { verb, has_ranges: true }) => return Class::Local(Local::Direct(verb)),
            Some(Named { verb, has_ranges: false }) => self.reader.rename(verb.name()),
            None => {}
        }
        Class::of(self.reader.current())
    }

    /// Whether more of a command for the gateway is waited for. It names memory of the client, in many pieces perhaps. Any other has no name,
    /// password or number that is so long.
    pub(super) fn awaits_rest(&self, local: Local) -> bool {
        matches!(local, Local::Direct(_)) && self.reader.expected() <= LONGEST_DIRECT
    }

    /// Whether the current command, which has not ended, names more memory than a command may. In front of a cluster, others may be as long.
    pub(super) fn names_too_much(&mut self) -> bool {
        self.reader.expected() > LONGEST_DIRECT && matches!(self.class(), Class::Local(Local::Direct(_)))
    }
}

/// Bytes of a command that names memory of the client: about 20 000 ranges.
pub(super) const LONGEST_DIRECT: usize = 1 << 20;
