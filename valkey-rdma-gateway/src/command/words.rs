//! Commands and their words: reading them and encoding them.

use valkey_rdma_resp::{CommandScanner, integer, put_header, words};

/// Whether a word is this name, in any letter case.
pub(crate) fn is(word: &[u8], expected: &str) -> bool {
    word.eq_ignore_ascii_case(expected.as_bytes())
}

/// All words of a complete command.
pub(crate) fn all(command: &[u8]) -> Vec<Vec<u8>> {
    words(command).map(<[u8]>::to_vec).collect()
}

/// The complete commands in front of `bytes`, one by one.
pub(crate) fn commands(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut scanner, mut rest) = (CommandScanner::default(), bytes);
    std::iter::from_fn(move || {
        let found = scanner.scan(rest).ok().filter(|found| found.complete && found.len > 0)?;
        let (command, after) = rest.split_at(found.len);
        rest = after;
        Some(command)
    })
}

/// A word that is a number, and not a negative one.
pub(crate) fn number(word: &[u8]) -> Option<u64> {
    integer::parse(word).and_then(|number| u64::try_from(number).ok())
}

/// Encodes a command.
pub(crate) fn encode<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Vec<u8> {
    let words: Vec<W> = words.into_iter().collect();
    let mut bytes = Vec::new();
    put_header(&mut bytes, b'*', words.len());
    words.iter().for_each(|word| put_word(&mut bytes, word.as_ref()));
    bytes
}

/// Encodes one word of a command.
pub(crate) fn encode_word(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_word(&mut bytes, word.as_bytes());
    bytes
}

fn put_word(bytes: &mut Vec<u8>, word: &[u8]) {
    put_header(bytes, b'$', word.len());
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(b"\r\n");
}
