//! Every wait ends, by whichever thread drives.

use std::sync::mpsc;
use std::thread::ThreadId;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::*;

fn reactor() -> Reactor {
    Reactor::new("test", || {}).expect("starts")
}

/// The thread that runs a task now.
fn driver(reactor: &Reactor) -> ThreadId {
    reactor.call(async { tokio::spawn(async { thread::current().id() }).await.expect("no panic") })
}

#[test]
fn a_lone_caller_comes_to_drive() {
    let reactor = reactor();
    // It may have begun while the background thread drove.
    while driver(&reactor) != thread::current().id() {}
}

#[test]
fn the_background_thread_drives_while_nobody_waits() {
    let reactor = reactor();
    for _ in 0..20 {
        let (ran, runs) = mpsc::channel();
        let (begin, begins) = oneshot::channel::<()>();
        // This thread waits for the task's first half, and the second half needs no caller.
        let (half, done) = oneshot::channel();
        reactor.spawn(async move {
            half.send(()).expect("waited for");
            begins.await.expect("sent below");
            ran.send(thread::current().id()).expect("waited for");
        });
        reactor.call(done).expect("half of it runs");
        // So long that the background thread sleeps.
        reactor.call(async { sleep(Duration::from_millis(10)).await });
        begin.send(()).expect("the task waits");
        assert_ne!(runs.recv().expect("the task runs"), thread::current().id());
    }
}

#[test]
fn tasks_run_although_a_caller_never_has_to_wait() {
    let reactor = reactor();
    let ran = Arc::new(AtomicBool::new(false));
    let runs = ran.clone();
    reactor.handle().spawn(async move { runs.store(true, Ordering::Release) });
    while !ran.load(Ordering::Acquire) {
        reactor.call(ready(()));
    }
}

#[test]
fn a_caller_that_waits_for_long_drives_for_the_others() {
    let reactor = reactor();
    let (end, ended) = oneshot::channel::<()>();
    let waits = reactor.clone();
    let long = thread::spawn(move || waits.call(ended));
    for _ in 0..100 {
        reactor.call(async { tokio::spawn(yield_now()).await.expect("no panic") });
    }
    end.send(()).expect("it waits");
    long.join().expect("no panic").expect("sent above");
}

#[test]
fn a_deadline_ends_a_wait_whoever_drives() {
    let reactor = reactor();
    let (_other, ended) = oneshot::channel::<()>();
    let never =
        || reactor.call_until(Some(Instant::now() + Duration::from_millis(5)), std::future::pending());
    let short = || reactor.call_until(Some(Instant::now() + Duration::from_millis(20)), ended);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(short(), None));
        for _ in 0..10 {
            assert_eq!(never(), None::<()>);
        }
    });
}

/// Callers come alone and together, wait for tasks, timers and each other, and give up; every wait ends.
#[test]
fn no_wake_up_is_lost_while_the_driver_changes() {
    const ROUNDS: u64 = 400;
    let reactor = &reactor();
    thread::scope(|scope| {
        for n in 0..6 {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    match (round * 7 + n) % 5 {
                        0 => reactor.call(async { tokio::spawn(yield_now()).await.expect("no panic") }),
                        1 => reactor.call(async { sleep(Duration::from_micros(100 * n)).await }),
                        2 => {
                            let (send, received) = oneshot::channel();
                            scope.spawn(move || send.send(()));
                            reactor.call(received).expect("sent");
                        }
                        3 => {
                            let soon = Instant::now() + Duration::from_micros(50 * n);
                            let given_up: Option<()> = reactor.call_until(Some(soon), std::future::pending());
                            assert!(given_up.is_none());
                        }
                        // Longer than the background thread leaves the runtime alone.
                        _ if round % 50 == 0 => thread::sleep(Duration::from_millis(5)),
                        _ => {}
                    }
                }
            });
        }
    });
}

#[test]
fn a_future_that_blocks_its_thread_holds_up_no_other_caller() {
    let reactor = reactor();
    for _ in 0..20 {
        let other = reactor.clone();
        let task = || async { tokio::spawn(yield_now()).await.expect("no panic") };
        reactor.wait(async {
            thread::spawn(move || other.call(task())).join().expect("no panic");
            // Waits within waits.
            reactor.call_until(None, task()).expect("without a deadline it waits");
            reactor.wait(task());
        });
    }
}

/// A future that parks its thread may take the wake-up that is meant for the whole.
#[test]
fn a_wake_up_that_something_else_takes_is_not_lost() {
    let reactor = reactor();
    for _ in 0..100 {
        let (send, mut received) = oneshot::channel();
        let mut send = Some(send);
        reactor
            .wait(poll_fn(|cx| {
                let polled = Pin::new(&mut received).poll(cx);
                if let Some(send) = send.take() {
                    send.send(()).expect("it waits");
                    // The waker has unparked this thread.
                    thread::park();
                }
                polled
            }))
            .expect("sent");
    }
}

#[test]
fn while_there_are_guests_the_background_thread_drives() {
    let reactor = reactor();
    for _ in 0..20 {
        let guest = reactor.guest();
        for _ in 0..10 {
            assert_ne!(driver(&reactor), thread::current().id());
        }
        drop(guest);
        while driver(&reactor) != thread::current().id() {}
    }
}

#[tokio::test]
async fn inside_an_async_runtime_another_thread_drives() {
    let reactor = reactor();
    for _ in 0..20 {
        let ran = reactor.call_until(None, async { reactor.handle().spawn(async { 7 }).await });
        assert_eq!(ran.expect("without a deadline it waits").expect("no panic"), 7);
    }
    // This would block here if it waited for the tasks.
    drop(reactor);
}

#[test]
fn what_is_left_for_the_end_runs_before_the_runtime_ends() {
    let reactor = reactor();
    let (begin, begins) = oneshot::channel();
    let (done, is_done) = mpsc::channel();
    reactor.at_end(async move {
        begins.await.expect("sent below");
        tokio::spawn(yield_now()).await.expect("tasks run too");
        done.send(()).expect("waited for");
    });
    // It does not wait.
    drop(reactor);
    begin.send(()).expect("it waits");
    is_done.recv().expect("it runs to its end");
}

#[test]
fn a_forked_child_neither_runs_nor_drops_what_is_left_for_the_end() {
    let parents = reactor();
    let inner = Inner {
        handle: parents.handle().clone(),
        runtime: Mutex::default(),
        turns: Turns::default(),
        process: process::id() + 1,
        kept: AtomicBool::new(false),
        last: Mutex::default(),
    };
    let childs = Reactor(Arc::new(Owner(Some(Arc::new(inner)))));
    let held = Arc::new(());
    let holds = held.clone();
    childs.at_end(async move { drop(holds) });
    drop(childs);
    assert_eq!(Arc::strong_count(&held), 2);
}
