//! Comparing what arrives with what was sent.

use std::pin::pin;

use tokio::time::timeout;

use super::error::{FabricError, Failure};
use super::lane::{Place, Received};
use super::message::Message;
use super::run::Operation;
use super::session::Session;
use super::size::size_text;
use super::work::Wait;

/// Bytes that depend on each bit of the seed: what an earlier comparison has left is none of them.
fn pattern(seed: u64, size: u32) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Describes how bytes differ. `None`: they match.
fn difference(what: &str, lane: usize, found: &[u8], expected: &[u8]) -> Option<String> {
    let size = size_text(u32::try_from(expected.len()).unwrap_or(u32::MAX));
    let place = format!("{what} of {size} on queue pair {lane}");
    if found.len() != expected.len() {
        return Some(format!("{place}: {} bytes arrived", found.len()));
    }
    let mut different =
        found.iter().zip(expected).enumerate().filter(|(_, (found, expected))| found != expected);
    let (at, (found, expected)) = different.next()?;
    let more = match different.count() {
        0 => String::new(),
        count => format!(", and {count} more"),
    };
    Some(format!("{place}: byte {at} is {found:#04x}, not {expected:#04x}{more}"))
}

/// The sending end: SEND, then WRITE and READ back, then WRITE with immediate. Returns what does not match.
pub(super) async fn send(
    session: &mut Session,
    lane: usize,
    size: u32,
    seed: u64,
) -> Result<Vec<String>, FabricError> {
    session.control.now(format!("comparing {} on queue pair {lane}", size_text(size)));
    let mut differences = Vec::new();

    session.lanes[lane].stage(&pattern(seed, size));
    session.transmit(lane, Operation::Send, size).await?;
    session.lanes[lane].stage(&pattern(seed + 1, size));
    session.transmit(lane, Operation::Write, size).await?;
    session.control.send(&Message::Written).await?;
    match session.answer_about(size).await? {
        Message::Looked => {}
        other => return Err(session.control.unexpected(&other)),
    }
    session.transmit(lane, Operation::Read, size).await?;
    let back = session.lanes[lane].copy_of(Place::Inbox, size);
    differences.extend(difference("WRITE and READ back", lane, &back, &pattern(seed + 1, size)));
    session.lanes[lane].stage(&pattern(seed + 2, size));
    session.transmit(lane, Operation::WriteImm, size).await?;
    match session.answer_about(size).await? {
        Message::Compared { differences: of_peer } => differences.extend(of_peer),
        other => return Err(session.control.unexpected(&other)),
    }
    Ok(differences)
}

/// The receiving end.
pub(super) async fn receive(
    session: &mut Session,
    lane: usize,
    size: u32,
    seed: u64,
    corrupt: bool,
) -> Result<(), FabricError> {
    session.control.now(format!("comparing {} on queue pair {lane}", size_text(size)));
    let mut differences = Vec::new();

    let Received { len, .. } = session.await_message(lane, size).await?;
    let message = session.lanes[lane].copy_of(Place::Inbox, len.min(size));
    differences.extend(difference("SEND", lane, &message, &pattern(seed, size)));

    match session.answer_about(size).await? {
        Message::Written => {}
        other => return Err(session.control.unexpected(&other)),
    }
    let written = session.lanes[lane].copy_of(Place::Window, size);
    differences.extend(difference("WRITE", lane, &written, &pattern(seed + 1, size)));
    if corrupt {
        session.lanes[lane].corrupt(size);
    }
    session.control.send(&Message::Looked).await?;

    let Received { imm, .. } = session.await_message(lane, size).await?;
    let written = session.lanes[lane].copy_of(Place::Window, size);
    differences.extend(difference("WRITE with immediate", lane, &written, &pattern(seed + 2, size)));
    if imm != Some(size) {
        differences.push(format!("the immediate of a WRITE on queue pair {lane}: {imm:?}, not {size}"));
    }
    session.control.send(&Message::Compared { differences }).await
}

impl Session {
    /// Sends one message, and waits until it is done.
    async fn transmit(&mut self, lane: usize, operation: Operation, size: u32) -> Result<(), FabricError> {
        let patience = self.control.patience_for(size.into());
        let Session { control, lanes, .. } = &mut *self;
        let lane = &mut lanes[lane];
        let sent = {
            let mut sent = pin!(timeout(patience, async {
                lane.post(operation, size, 1)?;
                lane.sent(&Wait::Task).await
            }));
            tokio::select! {
                biased;
                sent = &mut sent => sent,
                message = control.next() => {
                    // The peer may have received it before this side sees that it was sent.
                    control.put_back(message?);
                    sent.await
                }
            }
        };
        match sent {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.explain(Failure::Device(error)).await),
            Err(_) => Err(self.control.silent(patience)),
        }
    }

    /// The peer's next message, which may follow bytes that it still receives.
    async fn answer_about(&mut self, size: u32) -> Result<Message, FabricError> {
        self.control.answer_within(self.control.patience_for(size.into())).await
    }

    /// Waits for a message of this size.
    async fn await_message(&mut self, lane: usize, size: u32) -> Result<Received, FabricError> {
        let patience = self.control.patience_for(size.into());
        match timeout(patience, self.lanes[lane].received(&Wait::Task)).await {
            Ok(Ok(Some(received))) => Ok(received),
            Ok(Err(error)) => Err(self.explain(Failure::Device(error)).await),
            Ok(Ok(None)) | Err(_) => Err(self.control.silent(patience)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_a_difference() {
        let expected = pattern(7, 4096);
        assert_eq!(difference("SEND", 0, &expected, &expected), None);
        let mut found = expected.clone();
        found[17] ^= 1;
        let text = difference("SEND", 3, &found, &expected).expect("a difference");
        let (is, should) = (found[17], expected[17]);
        assert_eq!(text, format!("SEND of 4 KiB on queue pair 3: byte 17 is {is:#04x}, not {should:#04x}"));
        found[4095] ^= 1;
        assert!(difference("SEND", 3, &found, &expected).is_some_and(|text| text.ends_with(", and 1 more")));
        let short = difference("SEND", 0, &found[..9], &expected).expect("a difference");
        assert!(short.ends_with("9 bytes arrived"), "{short}");
    }

    #[test]
    fn patterns_of_neighbouring_seeds_differ() {
        let differing =
            pattern(1, 256).iter().zip(pattern(2, 256)).filter(|(one, other)| **one != *other).count();
        assert!(differing > 200, "{differing}");
    }
}
