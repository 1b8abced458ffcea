//! How the two sides agree on this project's feature bits before the first byte of data (clauses F-5 to F-9).
//!
//! A client that wants a feature sends its question right behind its first Register, so that the answer comes with or
//! just after the server's Register. What it chooses leaves ahead of its data, and the server receives both in order.
//! A server that offers a feature learns from the first thing that the client sends, choice or data, whether it is used.
//! Until then no side can write or read a byte: the bytes could be the start of a TLS connection, or not.

use super::credits::MessageClass;
use super::{Connection, Event, State};
use crate::config::{Config, Role};
use crate::error::{CloseReason, ProtocolError};
use crate::features::{FEATURE_SELECTOR, FeatureSet};
use crate::wire::{ControlMessage, Features};

/// These bits, under the selector of this project.
fn selected(bits: FeatureSet) -> Features {
    Features { select: FEATURE_SELECTOR, bits: bits.bits() }
}

impl Config {
    /// The features that a client asks for.
    fn asked_for(&self) -> FeatureSet {
        self.wants | self.requires
    }

    /// What is agreed from the start: nothing, unless there is something to agree on.
    pub(super) fn agreed_from_the_start(&self, role: Role) -> Option<FeatureSet> {
        let open = match role {
            Role::Client => self.asked_for(),
            Role::Server => self.offers,
        };
        open.is_empty().then_some(FeatureSet::NONE)
    }
}

impl Connection {
    /// Returns the features that both sides use on this connection, or `None` while that is open: until the server's
    /// answer at a client that wants some, and until the client's choice or first bytes at a server that offers some.
    ///
    /// It changes once, from `None`, and [`Event::Agreed`] reports that. While it is `None`, no byte can be written or read.
    pub fn agreed(&self) -> Option<FeatureSet> {
        self.agreed
    }

    /// A client that wants a feature asks what the server offers (clause F-5).
    pub(super) fn ask_for_features(&mut self) {
        if (self.role, self.agreed) == (Role::Client, None) {
            // The answer proves what every answer does (clause C-3).
            self.send_control(
                ControlMessage::GetServerFeature(selected(FeatureSet::NONE)),
                MessageClass::Probe,
            );
        }
    }

    /// A server answers every question, at any time; it offers features under one selector only (clauses F-1, F-5).
    pub(super) fn answer_features(&mut self, select: u16) -> Result<(), ProtocolError> {
        let bits = if select == FEATURE_SELECTOR { self.config.offers.bits() } else { 0 };
        let answer = ControlMessage::GetServerFeature(Features { select, bits });
        self.outbox.push(answer, MessageClass::Other)
    }

    /// A client got an answer. If it is the first one since it wanted features, it chooses (clause F-6).
    pub(super) fn handle_features(&mut self, answer: Features) -> Result<(), ProtocolError> {
        if self.agreed.is_some() || self.state != State::Open {
            return Ok(());
        }
        // Bits under another selector mean something else, and offer nothing.
        let offered = match answer.select {
            FEATURE_SELECTOR => FeatureSet::from_bits(answer.bits),
            _ => FeatureSet::NONE,
        };
        let missing = self.config.requires - offered;
        if !missing.is_empty() {
            self.end(CloseReason::NotOffered { missing });
            return Ok(());
        }
        let chosen = self.config.asked_for() & offered;
        if !chosen.is_empty() {
            if self.counters.bytes_received > 0 {
                return Err(ProtocolError::DataBeforeAgreement);
            }
            // Nothing has filled a window yet. So only the first Register, the question and one keepalive can be in
            // flight, a slot is free, and no data overtakes this message.
            self.send_control(ControlMessage::SetClientFeature(selected(chosen)), MessageClass::Other);
        }
        self.agree(chosen);
        self.complete_handshake();
        Ok(())
    }

    /// A server got a client's choice. Bits under other selectors, and all bits if it offers none, are unknown to it
    /// (clause F-2).
    pub(super) fn handle_choice(&mut self, choice: Features) -> Result<(), ProtocolError> {
        if choice.select != FEATURE_SELECTOR || self.config.offers.is_empty() {
            return Ok(());
        }
        let chosen = FeatureSet::from_bits(choice.bits);
        let missing = chosen - self.config.offers;
        if !missing.is_empty() {
            return Err(ProtocolError::FeatureNotOffered { features: missing });
        }
        if self.agreed.is_some() {
            return Err(ProtocolError::LateFeatures { features: chosen });
        }
        self.agree(chosen);
        Ok(())
    }

    /// The peer announced the first bytes in a window. If they are the first of the connection, the client has chosen
    /// nothing before, and uses no feature (clause F-7).
    pub(super) fn handle_bytes_before_choice(&mut self) {
        if (self.role, self.agreed) == (Role::Server, None) {
            self.agree(FeatureSet::NONE);
        }
    }

    /// Cold, because it happens once in a connection, in the middle of what happens for every message.
    #[cold]
    fn agree(&mut self, features: FeatureSet) {
        self.agreed = Some(features);
        self.send_buffer.unseal();
        // Bytes that were polled after the end can still be read, but no event follows that of the end.
        if !self.is_closed() {
            self.events.push_back(Event::Agreed { features });
        }
    }
}
