//! The words of commands: reading them and encoding them.

use valkey_rdma_resp::{put_header, words};

/// All words of a complete command.
pub(crate) fn all(command: &[u8]) -> Vec<Vec<u8>> {
    words(command).map(<[u8]>::to_vec).collect()
}

/// Encodes a command.
pub(crate) fn encode<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Vec<u8> {
    let words: Vec<W> = words.into_iter().collect();
    let mut bytes = Vec::new();
    put_header(&mut bytes, b'*', words.len());
    for word in &words {
        put_header(&mut bytes, b'$', word.as_ref().len());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
