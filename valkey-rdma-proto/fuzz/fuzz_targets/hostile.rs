//! Any peer, on any device, under any application.
#![no_main]

#[path = "../../../valkey-rdma-proto/tests/protocol/hostile/victim.rs"]
mod victim;

libfuzzer_sys::fuzz_target!(|story: victim::Story| story.play());
