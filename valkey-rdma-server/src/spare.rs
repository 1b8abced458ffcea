//! Two buffers, for input and for replies, that all idle connections of a thread share.
//!
//! A connection borrows them to work, and keeps one only as long as something waits in it. So 10 000 idle connections hold two
//! buffers and not 20 000, and a busy thread works in memory that its processor has in its cache.

use std::cell::Cell;

use bytes::BytesMut;
use valkey_rdma_resp::{Output, Parser};

thread_local! {
    static INPUT: Cell<BytesMut> = Cell::default();
    static REPLIES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Gives `parser` this thread's buffer, unless it has one.
#[inline]
pub(crate) fn lend_input(parser: &mut Parser) {
    if !parser.has_buffer() {
        parser.set_buffer(INPUT.take());
    }
}

/// Gives `output` this thread's buffer, unless it has one.
#[inline]
pub(crate) fn lend_output(output: &mut Output) {
    if !output.has_buffer() {
        output.set_buffer(REPLIES.take());
    }
}

/// Takes the buffers back in which nothing waits.
#[inline]
pub(crate) fn take_back(parser: &mut Parser, output: &mut Output) {
    if let Some(buffer) = parser.take_buffer() {
        INPUT.set(buffer);
    }
    if let Some(buffer) = output.take_buffer() {
        REPLIES.set(buffer);
    }
}
