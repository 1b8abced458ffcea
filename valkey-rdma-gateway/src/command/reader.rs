//! [`CommandReader`]: the input of one client, cut into commands.

use bytes::{Buf, Bytes, BytesMut};
use valkey_rdma_resp::{CommandError, CommandScanner, inline_words, words};

use crate::command::class::Class;
use crate::command::words::{encode, encode_word};

/// Received bytes: first a batch of accepted commands, then the current command, then the rest.
#[derive(Debug, Default)]
pub(crate) struct CommandReader {
    input: BytesMut,
    scanner: CommandScanner,
    /// End of the batch.
    begin: usize,
    /// End of the part of the current command that the scanner has passed.
    scanned: usize,
    /// The current command is complete.
    complete: bool,
    /// The current command has no words: see [`is_held`](Self::is_held).
    is_held: bool,
    /// The current command gets another name: see [`is_held`](Self::is_held).
    awaits_name: bool,
    /// What is not a command: nothing after it is looked at.
    failed: Option<CommandError>,
}

impl CommandReader {
    /// The buffer to read into, with room.
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        if self.input.capacity() - self.input.len() < ROOM / 4 {
            // A buffer that one read has filled is not large enough.
            self.input.reserve((2 * self.input.len()).clamp(ROOM, MOST_ROOM));
        }
        &mut self.input
    }

    /// Gives the memory of an empty buffer back, if it is much.
    pub(crate) fn rest(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 4 * ROOM {
            self.input = BytesMut::new();
        }
    }

    /// Bytes received and not taken.
    pub(crate) fn len(&self) -> usize {
        self.input.len()
    }

    /// Looks for the end of the current command. `true` if it is complete: see [`current`](Self::current).
    pub(crate) fn scan(&mut self) -> Result<bool, CommandError> {
        self.failed.clone().map_or(Ok(()), Err)?;
        let found = self.find_end();
        self.failed = found.as_ref().err().cloned();
        found
    }

    fn find_end(&mut self) -> Result<bool, CommandError> {
        self.awaits_name &= self.begin > 0;
        loop {
            if self.is_held && self.begin == 0 {
                self.is_held = false;
                self.input.advance(std::mem::take(&mut self.scanned));
            }
            if self.is_held || self.complete || self.scanned == self.input.len() {
                return Ok(self.complete);
            }
            let found = self.scanner.scan(&self.input[self.scanned..])?;
            self.scanned += found.len;
            if !found.complete {
                return Ok(false);
            }
            let command = &self.input[self.begin..self.scanned];
            // A command in pieces has begun before this buffer, and has words.
            self.complete = command.first() == Some(&b'*')
                && command.get(1..3) != Some(b"0\r")
                && command.get(1) != Some(&b'-');
            if !self.complete {
                self.replace_current()?;
            }
        }
    }

    /// Whether the batch must go before there is another command: one without words follows it, and is cut off then, or one that gets
    /// a shorter name. To make it shorter between others would copy all that follows, for each of thousands.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held || self.awaits_name
    }

    /// Encodes an inline command as any other.
    fn replace_current(&mut self) -> Result<(), CommandError> {
        let words = match &self.input[self.begin..self.scanned] {
            [b'*', ..] => Vec::new(),
            line => inline_words(line)?,
        };
        if words.is_empty() {
            self.is_held = true;
            return Ok(());
        }
        let encoded = encode(&words);
        let rest = self.input.split_off(self.scanned);
        self.input.truncate(self.begin);
        self.input.extend_from_slice(&encoded);
        self.input.unsplit(rest);
        self.scanned = self.begin;
        Ok(())
    }

    /// Gives the current command, whose name has arrived, another name. It is not longer than the one it has. Behind a batch, the command
    /// is [held](Self::is_held) instead.
    pub(crate) fn rename(&mut self, name: &str) {
        self.awaits_name = self.begin > 0;
        if self.awaits_name {
            return;
        }
        let current = self.current();
        let line =
            |from: usize| current[from..].iter().position(|byte| *byte == b'\n').map(|end| from + end + 1);
        let Some((header, word)) = line(0).and_then(|header| Some((header, line(header)?))) else { return };
        let former = words(current).next().unwrap_or_default().len();
        let renamed = encode_word(name);
        let end = word + former + b"\r\n".len();
        let Some(saved) = (end - header).checked_sub(renamed.len()) else { return };
        // The shorter head ends where the arguments begin: these may be long, and stay.
        self.input[end - renamed.len()..end].copy_from_slice(&renamed);
        self.input.copy_within(..header, saved);
        self.input.advance(saved);
        self.scanned -= saved;
    }

    /// The current command, as far as it was received and scanned.
    pub(crate) fn current(&self) -> &[u8] {
        &self.input[self.begin..self.scanned]
    }

    /// Whether the current command, which is not complete, will have more than `most` bytes, and it is known what it does. What it has
    /// announced counts as what has arrived: a server looks at the announced length, too, and does not wait for the bytes.
    ///
    /// A name that is itself too long for any command makes the input [fail](Self::scan).
    pub(crate) fn is_long(&mut self, most: usize) -> Result<bool, CommandError> {
        if self.is_held {
            return Ok(false);
        }
        if words(self.current()).next().is_some() {
            let is_known = self.scanner.word_lacks() > LONGEST_OPTION || Class::is_known(self.current());
            return Ok(self.expected() > most && is_known);
        }
        let name = self.at_least(self.scanner.word_lacks());
        if name > most.max(MOST_NAME) { Err(self.fail()) } else { Ok(false) }
    }

    /// Bytes that the current command has at least: those that have arrived, and those that it has announced.
    pub(crate) fn expected(&self) -> usize {
        self.at_least(self.scanner.lacks())
    }

    fn at_least(&self, lacking: u64) -> usize {
        let announced = self.scanned.saturating_add(usize::try_from(lacking).unwrap_or(usize::MAX));
        self.input.len().max(announced) - self.begin
    }

    /// Fails if the word that has begun is longer than any that a server takes by default.
    pub(crate) fn check_word(&mut self) -> Result<(), CommandError> {
        if self.scanner.word_lacks() > MOST_WORD { Err(self.fail()) } else { Ok(()) }
    }

    /// Ends the input: a word of it is too long.
    fn fail(&mut self) -> CommandError {
        self.failed.get_or_insert(CommandError::InvalidBulkLen).clone()
    }

    /// Adds the current command to the batch.
    pub(crate) fn accept(&mut self) {
        self.begin = self.scanned;
        self.complete = false;
    }

    pub(crate) fn batch(&self) -> &[u8] {
        &self.input[..self.begin]
    }

    pub(crate) fn drop_batch(&mut self) {
        self.input.advance(self.begin);
        self.scanned -= self.begin;
        self.begin = 0;
    }

    /// Takes the current command, or the part of it that was scanned. The batch must be empty.
    pub(crate) fn take(&mut self) -> Bytes {
        debug_assert_eq!(self.begin, 0, "the batch goes first");
        self.complete = false;
        self.input.split_to(std::mem::take(&mut self.scanned)).freeze()
    }

    /// Scans a command whose first part was [taken](Self::take). `true` if it ends in what [`take`](Self::take) returns next.
    pub(crate) fn scan_on(&mut self) -> Result<bool, CommandError> {
        self.failed.clone().map_or(Ok(()), Err)?;
        let found = self.scanner.scan(&self.input[self.scanned..]);
        self.failed = found.as_ref().err().cloned();
        let found = found?;
        self.scanned += found.len;
        Ok(found.complete)
    }

    /// Takes everything, commands or not.
    pub(crate) fn take_all(&mut self) -> Bytes {
        (self.begin, self.scanned, self.complete, self.is_held) = (0, 0, false, false);
        self.input.split().freeze()
    }
}

/// A name that has not ended within this many bytes is none. An inline command may be that long.
const MOST_NAME: usize = 128 * 1024;
/// A longer word behind the name says nothing of what a command does.
const LONGEST_OPTION: u64 = 64;
/// Valkey's default of `proto-max-bulk-len`.
const MOST_WORD: u64 = 512 << 20;
/// Room for the first read, and about what an idle client costs.
const ROOM: usize = 4 * 1024;
const MOST_ROOM: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8]) -> CommandReader {
        let mut reader = CommandReader::default();
        reader.room().extend_from_slice(bytes);
        reader
    }

    #[test]
    fn a_batch_is_contiguous_whatever_lies_between() {
        let get = encode(["GET", "k"]);
        let bytes = [&get[..], b"*0\r\n", b"\r\n", b"GET k\r\n", &get, b"*1\r\n$4\r\nPI"].concat();
        let mut reader = reader(&bytes);
        let mut batches = Vec::new();
        while batches.len() < 2 {
            while reader.scan().unwrap() {
                assert_eq!(reader.current(), get);
                reader.accept();
            }
            batches.push((reader.batch().to_vec(), reader.is_held()));
            reader.drop_batch();
        }
        assert_eq!(
            batches,
            [(get.clone(), true), (get.repeat(2), false)],
            "cut where a command has no words"
        );
        assert!(!reader.scan().unwrap());
        reader.room().extend_from_slice(b"NG\r\n");
        assert!(reader.scan().unwrap());
        assert_eq!(reader.take(), encode(["PING"]));
        assert!(reader.input.is_empty());
    }

    #[test]
    fn a_long_command_is_taken_in_pieces() {
        let command = encode([&b"SET"[..], b"k", &[b'x'; 100]]);
        let mut reader = reader(&command[..50]);
        assert!(!reader.scan().unwrap());
        let mut taken = reader.take().to_vec();
        reader.room().extend_from_slice(&command[50..]);
        reader.room().extend_from_slice(b"PING\r\n");
        assert!(reader.scan_on().unwrap());
        taken.extend_from_slice(&reader.take());
        assert_eq!(taken, command);
        assert!(reader.scan().unwrap());
        assert_eq!(reader.current(), encode(["PING"]));
    }

    /// In pieces it would pass as one that leaves no state.
    #[test]
    fn a_command_is_long_once_it_is_known_what_it_does() {
        for (part, is_long) in [
            (&b"*30000\r\n$6\r\nCLIENT\r\n"[..], false),
            (b"*30000\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n", false),
            (b"*30000\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n", true),
            (b"*30000\r\n$6\r\nCLIENT\r\n$4\r\nCAPA\r\n", true),
            (b"*2\r\n$6\r\nCLIENT\r\n$70000\r\n", true),
            (b"*30000\r\n$7\r\nCLUSTER\r\n", false),
            (b"*30000\r\n$5\r\nXREAD\r\n", false),
            (b"*30000\r\n$4\r\nSADD\r\n", true),
        ] {
            let mut reader = reader(part);
            assert!(!reader.scan().unwrap());
            assert_eq!(reader.is_long(65_536), Ok(is_long), "{}", part.escape_ascii());
        }
    }

    #[test]
    fn a_renamed_command_keeps_its_arguments_and_what_follows() {
        let get = encode(["GET", "k"]);
        let long = encode([&b"BLOB.SET"[..], b"k", &[b'x'; 100]]);
        let mut reader = reader(&[&get, &encode(["blob.get", "k"]), &long[..50]].concat());
        assert!(reader.scan().unwrap());
        reader.accept();
        assert!(reader.scan().unwrap());
        reader.rename("GET");
        assert!(reader.is_held(), "the batch goes first");
        reader.drop_batch();
        assert!(reader.scan().unwrap() && !reader.is_held());
        reader.rename("GET");
        assert_eq!(reader.current(), get);
        drop(reader.take());
        assert!(!reader.scan().unwrap());
        reader.rename("SET");
        reader.rename("LONGER");
        reader.room().extend_from_slice(&long[50..]);
        assert!(reader.scan().unwrap());
        assert_eq!(reader.current(), encode([&b"SET"[..], b"k", &[b'x'; 100]]));
    }

    #[test]
    fn what_is_not_a_command_stays_so() {
        for bytes in [&b"*1\r\n:4\r\nPING\r\n"[..], b"ECHO \"a\r\nPING\r\n"] {
            let mut reader = reader(bytes);
            let error = reader.scan().unwrap_err();
            reader.room().extend_from_slice(b"PING\r\n");
            assert_eq!((reader.scan(), reader.scan_on()), (Err(error.clone()), Err(error)));
        }
    }

    #[test]
    fn memory_is_given_back() {
        let mut reader = reader(&encode([vec![b'x'; 100_000]]));
        reader.rest();
        assert!(reader.input.capacity() > 0, "it is not empty");
        drop(reader.take_all());
        reader.room();
        reader.input.reserve(100_000);
        reader.rest();
        assert_eq!(reader.input.capacity(), 0);
    }
}
