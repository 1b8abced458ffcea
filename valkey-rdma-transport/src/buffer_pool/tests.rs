use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::send_memory::PinnedSlice;

fn pool(buffers: usize, len: usize) -> BufferPool {
    BufferPool::new(buffers, len).expect("a usable pool")
}

#[test]
fn buffers_are_as_long_as_asked_zeroed_apart_and_on_cache_lines() {
    let pool = pool(3, 100);
    let mut buffers: Vec<_> = (0..3).map(|_| pool.try_take().expect("free")).collect();
    assert!(pool.try_take().is_none());
    for (n, buffer) in buffers.iter_mut().enumerate() {
        assert_eq!(buffer[..], [0; 100]);
        assert_eq!(buffer.as_ptr().addr() % ALIGNMENT, 0);
        buffer.fill(n as u8 + 1);
    }
    for (n, buffer) in buffers.iter().enumerate() {
        assert_eq!(buffer[..], [n as u8 + 1; 100]);
    }
    drop(buffers);
    assert_eq!(pool.available(), 3);
}

#[test]
fn pools_of_nothing_and_of_too_much_are_refused() {
    for (buffers, len) in
        [(0, 1), (1, 0), (1 << 12, 1 << 20), (1, usize::MAX), (usize::MAX, 1), (65, u32::MAX as usize)]
    {
        let refused = BufferPool::new(buffers, len).expect_err("refused");
        assert_eq!(refused, UnusablePool { buffers, len });
        assert!(refused.to_string().contains(&len.to_string()), "{refused}");
    }
}

#[test]
fn who_waits_gets_the_buffer_that_comes_back() {
    let pool = pool(1, 10);
    let first = pool.try_take().expect("free");
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiting = pin!(pool.take());
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    let value = first.freeze();
    let part = value.slice(3..5);
    drop(value);
    assert!(waiting.as_mut().poll(&mut cx).is_pending(), "a part of it is still held");
    drop(part);
    assert!(pool.try_take().is_none(), "it is theirs who wait");
    let Poll::Ready(buffer) = waiting.as_mut().poll(&mut cx) else { panic!("it has come back") };
    drop(buffer);
    assert_eq!(pool.available(), 1);
}

#[test]
fn only_frozen_bytes_are_known_again_and_held() {
    let (pool, other) = (pool(2, 100), pool(1, 100));
    let mut buffer = pool.try_take().expect("free");
    let neighbour = pool.try_take().expect("free");
    buffer[7..12].copy_from_slice(b"value");
    assert!(PinnedSlice::of(&buffer).is_none(), "they may change");
    assert!(PinnedSlice::of(&[0; 100]).is_none(), "another's");
    assert!(PinnedSlice::of(&other.try_take().expect("free")).is_none());

    let value = buffer.freeze();
    assert!(PinnedSlice::of(&neighbour).is_none());
    let lease = PinnedSlice::of(&value[7..12]).expect("frozen");
    assert_eq!((lease.bytes(), lease.range().len()), (&b"value"[..], 5));
    assert_eq!(lease.memory().len(), pool.memory().len());
    let at = value.as_ptr().addr();
    drop(value);
    assert_eq!(pool.available(), 0, "held");
    drop(lease);
    let again = pool.try_take().expect("given back");
    assert_eq!(again.as_ptr().addr(), at);
    assert!(PinnedSlice::of(&again).is_none(), "they may change again");
}

/// Frozen bytes do not change, however often buffers are reused.
#[test]
fn bytes_that_are_held_do_not_change_while_buffers_go_round() {
    let pool = pool(2, 64);
    std::thread::scope(|scope| {
        for thread in 1..=3_u8 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..2000_u32 {
                    let Some(mut buffer) = pool.try_take() else { continue };
                    let byte = thread.wrapping_mul(round as u8);
                    buffer.fill(byte);
                    assert!(PinnedSlice::of(&buffer).is_none(), "not frozen");
                    let value = buffer.freeze();
                    let lease = PinnedSlice::of(&value).expect("frozen");
                    drop(value);
                    assert_eq!(lease.bytes(), [byte; 64]);
                }
            });
        }
    });
    assert_eq!(pool.available(), 2);
}

#[test]
fn a_pool_outlives_its_handle_for_those_who_hold_buffers_of_it() {
    let pool = pool(1, 10);
    let mut buffer = pool.try_take().expect("free");
    drop(pool);
    buffer.fill(1);
    let value = buffer.freeze();
    assert!(PinnedSlice::of(&value).is_some());
    assert_eq!(value[..], [1; 10]);
}
