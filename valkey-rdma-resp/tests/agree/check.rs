//! What the scanners promise: a program that passes frames on finds their ends where a program that decodes them does. If they
//! differed on any input, a proxy would take a part of one client's data for the command or the reply of another.

use bytes::BufMut;
use valkey_rdma_resp::{
    CommandError, CommandScanner, Decoder, FrameScanner, Parser, Protocol, Room, Scanned, inline_words, words,
};

/// Longer than any input here.
const MAX_ARGUMENT: usize = i64::MAX as usize;

/// Replies, in pieces of `step` bytes.
pub(crate) fn replies(bytes: &[u8], step: usize) {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let (decoded, valid) = decoded(bytes, protocol);
        // A scanner may refuse a reply that is not complete before a decoder does: no program has passed it on.
        let scanned = scanned(bytes, step);
        if valid {
            assert_eq!(decoded, scanned, "{protocol:?}, {:?}", bytes.escape_ascii().to_string());
        } else {
            // The scanner does not look into numbers and the like.
            let agreed = scanned.get(..decoded.len());
            assert_eq!(Some(&decoded[..]), agreed, "{protocol:?}, {:?}", bytes.escape_ascii().to_string());
        }
    }
}

/// Where the replies end, and whether no byte was refused.
fn decoded(bytes: &[u8], protocol: Protocol) -> (Vec<usize>, bool) {
    let mut decoder = Decoder::new(protocol);
    decoder.room().extend_from_slice(bytes);
    let mut ends = Vec::new();
    loop {
        match decoder.next() {
            Ok(Some(_)) => ends.push(bytes.len() - decoder.buffered()),
            Ok(None) => return (ends, true),
            Err(_) => return (ends, false),
        }
    }
}

/// Where the replies end.
fn scanned(bytes: &[u8], step: usize) -> Vec<usize> {
    let mut scanner = FrameScanner::default();
    let (mut arrived, mut passed, mut ends) = (0, 0, Vec::new());
    while arrived < bytes.len() {
        arrived = bytes.len().min(arrived + step);
        loop {
            match scanner.scan(&bytes[passed..arrived]) {
                Ok(Scanned { len, complete }) => {
                    passed += len;
                    if !complete {
                        break;
                    }
                    ends.push(passed);
                }
                Err(_) => return ends,
            }
        }
    }
    ends
}

/// Commands and their words, and the error that ended them.
type Commands = (Vec<Vec<Vec<u8>>>, Option<CommandError>);

/// Commands, in pieces of `step` bytes.
pub(crate) fn commands(bytes: &[u8], step: usize) {
    let shown = bytes.escape_ascii().to_string();
    assert_eq!(parsed_commands(bytes, step), scanned_commands(bytes, step), "step {step}, {shown:?}");
}

fn parsed_commands(bytes: &[u8], step: usize) -> Commands {
    let mut parser = Parser::new(MAX_ARGUMENT);
    let (mut found, mut passed) = (Vec::new(), 0);
    while passed < bytes.len() {
        let piece = &bytes[passed..bytes.len().min(passed + step)];
        passed += match parser.room() {
            Room::Buffer(buffer) => {
                buffer.extend_from_slice(piece);
                piece.len()
            }
            Room::Argument(mut argument) => {
                let len = piece.len().min(argument.remaining_mut());
                argument.put_slice(&piece[..len]);
                len
            }
        };
        loop {
            match parser.next_command(true) {
                Ok(Some(command)) => {
                    let args = command.args().iter().map(|arg| arg.to_vec());
                    found.push(std::iter::once(command.name().to_vec()).chain(args).collect());
                }
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fn scanned_commands(bytes: &[u8], step: usize) -> Commands {
    let mut scanner = CommandScanner::default();
    let (mut arrived, mut passed, mut begin, mut found) = (0, 0, 0, Vec::new());
    while arrived < bytes.len() {
        arrived = bytes.len().min(arrived + step);
        loop {
            match scanner.scan(&bytes[passed..arrived]) {
                Ok(Scanned { len, complete }) => {
                    passed += len;
                    if !complete {
                        break;
                    }
                    let command = &bytes[std::mem::replace(&mut begin, passed)..passed];
                    let words: Vec<_> = if command[0] == b'*' {
                        words(command).map(<[u8]>::to_vec).collect()
                    } else {
                        match inline_words(command) {
                            Ok(words) => words.iter().map(|word| word.to_vec()).collect(),
                            Err(error) => return (found, Some(error)),
                        }
                    };
                    if !words.is_empty() {
                        found.push(words);
                    }
                }
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}
