//! The program as users run it, on the emulated device.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a panic is how a test fails"))]

mod bad_input;
mod fabric;
mod login;
mod mesh;
mod peers;

use std::process::Command;
use std::time::Duration;

use valkey_rdma_testkit::{Child, program};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(120);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(program("valkey-rdma-doctor", "valkey-rdma-doctor"));
    command.args(args);
    command
}

/// Starts the program.
fn start(args: &[&str]) -> Child {
    Child::start(&mut command(args)).unwrap()
}

/// Runs the program to its end: exit status, standard output, standard error.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let mut child = start(args);
    let status = child.wait(LIMIT).unwrap();
    (status.code(), child.stdout(), child.stderr())
}

/// Starts `listen` on a free port. Returns where.
fn listen(more: &[&str]) -> (Child, String) {
    let child = start(&[&["listen", "127.0.0.1:0", "--device", "emulated"], more].concat());
    let addr = child.ready(LIMIT).unwrap();
    (child, addr)
}
