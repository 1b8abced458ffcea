//! Flow control of messages: how many a client may send before the server has proven that it takes them (area C).
//!
//! Every WRITE_WITH_IMM and every SEND uses up one of the server's 1024 receives, which the server posts again when it
//! polls. It accepts with a receiver-not-ready retry count of zero, so one message too many ends the queue pair (clause
//! C-1). The device's acknowledgement proves nothing: it comes when a receive is used up, not when it is posted again.
//! Proof is:
//!
//! - a Register: the server has read our bytes to the end of its window;
//! - bytes in a window that we registered: the server has taken that Register, and all we sent before;
//! - an answer to GetServerFeature: the server has taken the question, and all we sent before.

/// Credits that data leaves untouched.
const RESERVE: u32 = 2;

/// The credits of one side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Credits {
    /// Most messages without proof. `None`: not counted, because the peer retries for ever.
    limit: Option<u32>,
    /// Messages sent.
    sent: u64,
    /// Messages that the server has provably taken.
    proven: u64,
    /// Number of the last data message.
    last_data: u64,
    /// Number of the last Register.
    last_register: u64,
    /// Number of the question in flight.
    probe: Option<u64>,
}

/// The class of a message, which decides what proves it taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MessageClass {
    Data,
    Register,
    Probe,
    Other,
}

impl Credits {
    pub(super) fn new(limit: Option<u32>) -> Self {
        Self { limit, sent: 0, proven: 0, last_data: 0, last_register: 0, probe: None }
    }

    /// Returns how many messages may still be sent.
    pub(super) fn left(&self) -> u32 {
        let unproven = u32::try_from(self.sent - self.proven).unwrap_or(u32::MAX);
        self.limit.map_or(u32::MAX, |limit| limit.saturating_sub(unproven))
    }

    /// Returns whether data may be sent. The last credits are kept for the messages that bring new ones: a Register, of
    /// which at most one is unproven, and a question.
    pub(super) fn allow_data(&self) -> bool {
        self.left() > RESERVE
    }

    /// Returns whether to ask the server for proof: half of the credits are used, and no question is in flight.
    pub(super) fn wants_probe(&self) -> bool {
        self.limit.is_some_and(|limit| self.probe.is_none() && self.left() <= limit / 2)
    }

    /// Counts a message that was sent.
    pub(super) fn spend(&mut self, class: MessageClass) {
        self.sent += 1;
        match class {
            MessageClass::Data => self.last_data = self.sent,
            MessageClass::Register => self.last_register = self.sent,
            MessageClass::Probe => self.probe = Some(self.sent),
            MessageClass::Other => {}
        }
    }

    /// The peer registered after this side had filled its window.
    pub(super) fn handle_window_renewed(&mut self) {
        self.proven = self.proven.max(self.last_data);
    }

    /// Bytes arrived in the window that this side registered last.
    pub(super) fn handle_first_bytes(&mut self) {
        self.proven = self.proven.max(self.last_register);
    }

    /// The server sent an answer. Returns whether a question was in flight.
    pub(super) fn handle_answer(&mut self) -> bool {
        let Some(number) = self.probe.take() else { return false };
        self.proven = self.proven.max(number);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_end_at_the_limit_and_come_back_with_proof_c1() {
        let mut credits = Credits::new(Some(8));
        for _ in 0..8 {
            credits.spend(MessageClass::Data);
        }
        assert_eq!(credits.left(), 0);
        credits.handle_window_renewed();
        assert_eq!(credits.left(), 8);
    }

    #[test]
    fn an_answer_proves_only_what_was_sent_before_the_question_c3() {
        let mut credits = Credits::new(Some(8));
        for _ in 0..4 {
            credits.spend(MessageClass::Data);
        }
        assert!(credits.wants_probe());
        credits.spend(MessageClass::Probe);
        assert!(!credits.wants_probe(), "one question at a time");
        credits.spend(MessageClass::Data);
        assert!(credits.handle_answer());
        assert_eq!(credits.left(), 7);
        assert!(!credits.handle_answer(), "answered unasked");
    }

    #[test]
    fn a_renewed_window_proves_the_data_that_filled_it_and_nothing_later_c2() {
        let mut credits = Credits::new(Some(8));
        credits.spend(MessageClass::Data);
        credits.spend(MessageClass::Register);
        credits.spend(MessageClass::Other);
        credits.handle_window_renewed();
        assert_eq!(credits.left(), 6);
    }

    #[test]
    fn the_first_bytes_in_a_window_prove_that_its_register_was_taken_c2() {
        let mut credits = Credits::new(Some(8));
        credits.spend(MessageClass::Data);
        credits.spend(MessageClass::Register);
        credits.spend(MessageClass::Data);
        credits.handle_first_bytes();
        assert_eq!(credits.left(), 7);
    }
}
