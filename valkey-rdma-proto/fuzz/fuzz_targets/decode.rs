//! Any bytes as a control message.
#![no_main]

#[path = "../../tests/protocol/hostile/decode.rs"]
mod decode;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decode::check(bytes));
