//! The cases, each a script of the server's faults and the end that a client must come to.

use super::Context;
use crate::Case;

/// Length of the server's window unless a case says otherwise: Valkey's.
const WINDOW: u32 = 1 << 20;

/// All cases.
pub const CASES: &[Case<Context>] = &[
    Case::<Context>::new("honest", |c| Box::pin(c.served(None, WINDOW)))
        .clause("H-2")
        .stimulus("a server without faults")
        .expected("served"),
    Case::<Context>::new("register-late", |c| Box::pin(c.served(Some("register-late=1000@1"), WINDOW)))
        .clause("H-3")
        .stimulus("the server's Register comes a second late")
        .expected("served"),
    Case::<Context>::new("register-late-later", |c| {
        Box::pin(c.served(Some("register-late=300@2.."), 65_536))
    })
    .clause("W-4")
    .stimulus("every later Register comes 300 ms late")
    .expected("served"),
    Case::<Context>::new("window-of-64-KiB", |c| Box::pin(c.served(None, 65_536)))
        .clause("W-2")
        .stimulus("a server window of 64 KiB")
        .expected("served"),
    Case::<Context>::new("window-of-100001", |c| Box::pin(c.served(None, 100_001)))
        .clause("W-2")
        .stimulus("a server window of 100001 bytes")
        .expected("served"),
    Case::<Context>::new("window-of-16-MiB", |c| Box::pin(c.served(None, 16 << 20)))
        .clause("W-2")
        .stimulus("a server window of 16 MiB")
        .expected("served"),
    Case::<Context>::new("reserved-noise", |c| Box::pin(c.served(Some("reserved"), WINDOW)))
        .clause("M-2")
        .stimulus("noise in the reserved bytes of every message")
        .expected("served"),
    Case::<Context>::new("replies-in-3", |c| Box::pin(c.served(Some("imm-split=3"), WINDOW)))
        .clause("I-1")
        .stimulus("every reply announced in 3 pieces")
        .expected("served"),
    Case::<Context>::new("replies-in-500", |c| {
        Box::pin(c.served(Some("imm-split=500@1,imm-split=500@1/50,seed=1"), WINDOW))
    })
    .clause("I-1")
    .stimulus("some replies announced in up to 500 pieces")
    .expected("served"),
    Case::<Context>::new("plain-writes-first", |c| Box::pin(c.served(Some("write-first"), WINDOW)))
        .clause("I-4")
        .stimulus("half of every reply written plainly first")
        .expected("served"),
    Case::<Context>::new("imm-of-0", |c| Box::pin(c.served(Some("imm-zero"), WINDOW)))
        .clause("I-5")
        .stimulus("an immediate of 0 before every reply")
        .expected("served"),
    Case::<Context>::new("no-keepalives", |c| Box::pin(c.served_without_keepalives(WINDOW)))
        .clause("K-1")
        .stimulus("no keepalives")
        .expected("served"),
    Case::<Context>::new("keepalive-flood", |c| Box::pin(c.served(Some("keepalive-flood=100"), WINDOW)))
        .clause("K-3")
        .stimulus("100 keepalives after every reply")
        .expected("served"),
    Case::<Context>::new("stalled-server", |c| Box::pin(c.served(Some("stall=500@1/300,seed=1"), WINDOW)))
        .clause("C-1")
        .stimulus("the server takes nothing for half a second, now and then")
        .expected("served; its 1024 receives are not used up without proof"),
    Case::<Context>::new("refused", |c| Box::pin(c.fails("refuse", WINDOW)))
        .clause("H-7")
        .stimulus("the connect request is rejected")
        .expected("an error"),
    Case::<Context>::new("closed-at-once", |c| Box::pin(c.fails("close-before@1", WINDOW)))
        .clause("H-7")
        .stimulus("disconnected before any Register")
        .expected("an error"),
    Case::<Context>::new("no-register", |c| Box::pin(c.fails("register-missing@1", WINDOW)))
        .clause("H-4")
        .stimulus("no Register from the server")
        .expected("an error, in time"),
    Case::<Context>::new("closed-before-reply", |c| Box::pin(c.fails("close-before@2", WINDOW)))
        .clause("X-4")
        .stimulus("disconnected instead of the first reply")
        .expected("an error"),
    Case::<Context>::new("closed-after-reply", |c| Box::pin(c.ends("close-after@2", WINDOW)))
        .clause("X-2")
        .stimulus("disconnected as soon as the first reply is there")
        .expected("served, if that was all; else an error"),
    Case::<Context>::new("imm-beyond-window", |c| Box::pin(c.fails("imm-over@1", WINDOW)))
        .clause("I-2")
        .stimulus("an immediate beyond any window")
        .expected("an error"),
    Case::<Context>::new("imm-wraps", |c| Box::pin(c.fails("imm-wrap", WINDOW)))
        .clause("I-2")
        .stimulus("immediates of 4 GiB - 1")
        .expected("an error"),
    Case::<Context>::new("imm-short", |c| Box::pin(c.fails("imm-short@1", WINDOW)))
        .clause("I-3")
        .stimulus("an immediate smaller than the write")
        .expected("an error"),
    Case::<Context>::new("opcode-0-unasked", |c| Box::pin(c.ends("opcode=0@1", WINDOW)))
        .clause("F-3")
        .stimulus("opcode 0, unasked")
        .expected("served, or an error"),
    Case::<Context>::new("opcode-1", |c| Box::pin(c.fails("opcode=1@1", WINDOW)))
        .clause("M-2")
        .stimulus("opcode 1 from the server")
        .expected("an error"),
    Case::<Context>::new("opcode-9", |c| Box::pin(c.fails("opcode=9@1", WINDOW)))
        .clause("M-2")
        .stimulus("opcode 9")
        .expected("an error"),
    Case::<Context>::new("message-of-31", |c| Box::pin(c.fails("message-length=31@1", WINDOW)))
        .clause("M-1")
        .stimulus("a message of 31 bytes")
        .expected("an error"),
    Case::<Context>::new("message-of-33", |c| Box::pin(c.fails("message-length=33@1", WINDOW)))
        .clause("M-1")
        .stimulus("a message of 33 bytes")
        .expected("an error"),
    Case::<Context>::new("register-early", |c| Box::pin(c.fails("register-early@1", WINDOW)))
        .clause("W-5")
        .stimulus("a Register while the window is partly written")
        .expected("an error"),
    Case::<Context>::new("register-of-0", |c| Box::pin(c.fails("register-length=0@1", WINDOW)))
        .clause("W-2")
        .stimulus("a first Register of length 0")
        .expected("an error"),
    Case::<Context>::new("register-of-4-GiB", |c| Box::pin(c.fails("register-length=4294967295@1", WINDOW)))
        .clause("W-2")
        .stimulus("a first Register of 4 GiB - 1 bytes")
        .expected("an error"),
    Case::<Context>::new("register-wrong-key", |c| Box::pin(c.fails("register-key@1", WINDOW)))
        .clause("L-3")
        .stimulus("a Register with a key that fits nothing")
        .expected("an error"),
    Case::<Context>::new("garbage", |c| Box::pin(c.fails("garbage,seed=1", WINDOW)))
        .clause("X-4")
        .stimulus("replies of noise")
        .expected("an error"),
    Case::<Context>::new("transfer-outside", |c| Box::pin(c.fails("transfer-off=1073741824", WINDOW)))
        .clause("D-2")
        .stimulus("a direct transfer, 1 GiB behind the range that the client has named")
        .expected("an error: the client's device refuses it"),
    Case::<Context>::new("transfer-stalled", |c| Box::pin(c.fails("transfer-half=600000", WINDOW)))
        .clause("D-5")
        .stimulus("half of a direct transfer, and then nothing for 10 minutes")
        .expected("an error, in time"),
];
