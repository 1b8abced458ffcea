//! Any peer, on any device, under any application.
#![no_main]

#[path = "../../tests/protocol/hostile/victim.rs"]
mod victim;

libfuzzer_sys::fuzz_target!(|story: victim::Story| drop(story.play()));
