//! The cases, each a script of the server's faults and the end that a client must come to.

use super::Context;
use crate::Case;

/// Length of the server's window unless a case says otherwise: Valkey's.
const WINDOW: u32 = 1 << 20;

/// All cases.
pub const CASES: &[Case<Context>] = &[
    Case::new("honest", "H-2", "a server without faults", "served", |c| Box::pin(c.served(None, WINDOW))),
    Case::new("register-late", "H-3", "the server's Register comes a second late", "served", |c| {
        Box::pin(c.served(Some("register-late=1000@1"), WINDOW))
    }),
    Case::new("register-late-later", "W-4", "every later Register comes 300 ms late", "served", |c| {
        Box::pin(c.served(Some("register-late=300@2.."), 65_536))
    }),
    Case::new("window-of-64-KiB", "W-2", "a server window of 64 KiB", "served", |c| {
        Box::pin(c.served(None, 65_536))
    }),
    Case::new("window-of-100001", "W-2", "a server window of 100001 bytes", "served", |c| {
        Box::pin(c.served(None, 100_001))
    }),
    Case::new("window-of-16-MiB", "W-2", "a server window of 16 MiB", "served", |c| {
        Box::pin(c.served(None, 16 << 20))
    }),
    Case::new("reserved-noise", "M-2", "noise in the reserved bytes of every message", "served", |c| {
        Box::pin(c.served(Some("reserved"), WINDOW))
    }),
    Case::new("replies-in-3", "I-1", "every reply announced in 3 pieces", "served", |c| {
        Box::pin(c.served(Some("imm-split=3"), WINDOW))
    }),
    Case::new("replies-in-500", "I-1", "some replies announced in up to 500 pieces", "served", |c| {
        Box::pin(c.served(Some("imm-split=500@1,imm-split=500@1/50,seed=1"), WINDOW))
    }),
    Case::new("plain-writes-first", "I-4", "half of every reply written plainly first", "served", |c| {
        Box::pin(c.served(Some("write-first"), WINDOW))
    }),
    Case::new("imm-of-0", "I-5", "an immediate of 0 before every reply", "served", |c| {
        Box::pin(c.served(Some("imm-zero"), WINDOW))
    }),
    Case::new("no-keepalives", "K-1", "no keepalives", "served", |c| {
        Box::pin(c.served_without_keepalives(WINDOW))
    }),
    Case::new("keepalive-flood", "K-3", "100 keepalives after every reply", "served", |c| {
        Box::pin(c.served(Some("keepalive-flood=100"), WINDOW))
    }),
    Case::new(
        "stalled-server",
        "C-1",
        "the server takes nothing for half a second, now and then",
        "served; its 1024 receives are not used up without proof",
        |c| Box::pin(c.served(Some("stall=500@1/300,seed=1"), WINDOW)),
    ),
    Case::new("refused", "H-7", "the connect request is rejected", "an error", |c| {
        Box::pin(c.fails("refuse", WINDOW))
    }),
    Case::new("closed-at-once", "H-7", "disconnected before any Register", "an error", |c| {
        Box::pin(c.fails("close-before@1", WINDOW))
    }),
    Case::new("no-register", "H-4", "no Register from the server", "an error, in time", |c| {
        Box::pin(c.fails("register-missing@1", WINDOW))
    }),
    Case::new("closed-before-reply", "X-4", "disconnected instead of the first reply", "an error", |c| {
        Box::pin(c.fails("close-before@2", WINDOW))
    }),
    Case::new(
        "closed-after-reply",
        "X-2",
        "disconnected as soon as the first reply is there",
        "served, if that was all; else an error",
        |c| Box::pin(c.ends("close-after@2", WINDOW)),
    ),
    Case::new("imm-beyond-window", "I-2", "an immediate beyond any window", "an error", |c| {
        Box::pin(c.fails("imm-over@1", WINDOW))
    }),
    Case::new("imm-wraps", "I-2", "immediates of 4 GiB - 1", "an error", |c| {
        Box::pin(c.fails("imm-wrap", WINDOW))
    }),
    Case::new("imm-short", "I-3", "an immediate smaller than the write", "an error", |c| {
        Box::pin(c.fails("imm-short@1", WINDOW))
    }),
    Case::new("opcode-0-unasked", "F-3", "opcode 0, unasked", "served, or an error", |c| {
        Box::pin(c.ends("opcode=0@1", WINDOW))
    }),
    Case::new("opcode-1", "M-2", "opcode 1 from the server", "an error", |c| {
        Box::pin(c.fails("opcode=1@1", WINDOW))
    }),
    Case::new("opcode-9", "M-2", "opcode 9", "an error", |c| Box::pin(c.fails("opcode=9@1", WINDOW))),
    Case::new("message-of-31", "M-1", "a message of 31 bytes", "an error", |c| {
        Box::pin(c.fails("message-length=31@1", WINDOW))
    }),
    Case::new("message-of-33", "M-1", "a message of 33 bytes", "an error", |c| {
        Box::pin(c.fails("message-length=33@1", WINDOW))
    }),
    Case::new("register-early", "W-5", "a Register while the window is partly written", "an error", |c| {
        Box::pin(c.fails("register-early@1", WINDOW))
    }),
    Case::new("register-of-0", "W-2", "a first Register of length 0", "an error", |c| {
        Box::pin(c.fails("register-length=0@1", WINDOW))
    }),
    Case::new("register-of-4-GiB", "W-2", "a first Register of 4 GiB - 1 bytes", "an error", |c| {
        Box::pin(c.fails("register-length=4294967295@1", WINDOW))
    }),
    Case::new("register-wrong-key", "L-3", "a Register with a key that fits nothing", "an error", |c| {
        Box::pin(c.fails("register-key@1", WINDOW))
    }),
    Case::new("garbage", "X-4", "replies of noise", "an error", |c| {
        Box::pin(c.fails("garbage,seed=1", WINDOW))
    }),
];
