//! Any bytes as replies and as commands. The first byte says how they arrive.
#![no_main]

#[path = "../../tests/agree/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((step, bytes)) = bytes.split_first() else { return };
    let step = usize::from(*step) + 1;
    check::replies(bytes, step);
    check::commands(bytes, step);
});
