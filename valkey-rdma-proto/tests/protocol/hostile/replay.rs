//! Replays what the fuzzer has found worth keeping, so that every test run goes everywhere it has been.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use arbitrary::{Arbitrary, Unstructured};

use super::decode;
use super::victim::Story;

/// Runs `target` on each file of its corpus; returns how many there were.
fn replay(name: &str, target: fn(&[u8])) -> usize {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files: Vec<_> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    let breaks = |file: &&PathBuf| {
        let bytes = fs::read(file).unwrap();
        catch_unwind(|| target(&bytes)).is_err()
    };
    let broken: Vec<_> = files.iter().filter(breaks).collect();
    assert!(broken.is_empty(), "{broken:?}");
    files.len()
}

#[test]
fn the_corpus_of_messages_decodes_or_is_refused() {
    assert!(replay("decode", decode::check) >= 5);
}

#[test]
fn the_corpus_of_hostile_peers_ends_in_data_nothing_or_one_typed_error() {
    let stories = replay("hostile", |bytes| {
        Story::arbitrary_take_rest(Unstructured::new(bytes)).unwrap().play();
    });
    assert!(stories >= 100);
}
