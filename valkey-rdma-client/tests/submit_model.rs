//! The queue between callers and the driver, in every interleaving of its threads: no request waits for a driver that
//! sleeps, whatever the order in which callers push, send for themselves and wake the connection task.
//!
//! The queue's own file is compiled here a second time, with loom's locks.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Wake, Waker};

use loom::sync::{Notify, atomic, mpsc};
use loom::thread;
use tokio::time::Instant;

use self::submit::{Ending, Load, Pushed, Sleep, Submit, SubmitQueue};
use self::sync::Mutex;

#[expect(dead_code, reason = "the client uses the rest")]
#[path = "../src/multiplexer/submit.rs"]
mod submit;

mod sync {
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no panic")
    }
}

/// A request whose caller waits until it is sent.
struct Item(mpsc::Sender<()>);

impl Submit for Item {
    fn load(&self) -> Load {
        Load { commands: 1, bytes: 1 }
    }

    fn due(&self) -> Option<Instant> {
        None
    }
}

/// The connection task, as its waker sees it.
struct Task(Notify);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// A mistake in how the queue is used.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The driver goes to sleep although the queue says that something is left to do.
    SleepsAnyway,
    /// A caller that is to send, and finds the driver in use, leaves it at that.
    LeavesClaim,
}

/// How the driver sleeps until the reply has come; then it sleeps idle.
struct Driver {
    before_reply: Sleep,
    fault: Fault,
}

struct World {
    queue: SubmitQueue<Item>,
    driver: Mutex<Driver>,
    /// Not loom's, because each step of a loom type multiplies the interleavings: the notification decides the order.
    replied: AtomicBool,
    step: atomic::AtomicBool,
    task: Arc<Task>,
}

impl World {
    /// Sends what waits until the driver sleeps. Returns true if the queue has ended.
    fn drive(&self, driver: &Driver) -> bool {
        loop {
            let asleep = if self.replied.load(SeqCst) { Sleep::Idle } else { driver.before_reply };
            let (_, ending) = self.queue.take(asleep == Sleep::Holding, usize::MAX, |item| {
                item.0.send(()).expect("its caller waits");
            });
            let slept = self.queue.sleep(asleep, &Waker::from(self.task.clone()));
            // Between these steps a caller may find that the driver sleeps, while its lock is still held. Loom tries only what
            // steps on the same object show.
            self.step.store(true, SeqCst);
            if ending != Ending::No || slept.is_ok() || driver.fault == Fault::SleepsAnyway {
                return ending != Ending::No;
            }
        }
    }

    /// A caller: pushes a request, does what the queue asks for, and waits until the request is sent.
    fn call(&self, fault: Fault) {
        let (item, sent) = mpsc::channel();
        if let Pushed::Claimed = self.queue.push(Item(item)) {
            self.step.load(SeqCst);
            match self.driver.try_lock() {
                Ok(driver) => drop(self.drive(&driver)),
                Err(_) if fault == Fault::LeavesClaim => {}
                Err(_) => self.queue.wake(),
            }
        }
        sent.recv().expect("the driver lives");
    }
}

/// A thread is interrupted at most this often between two steps at which it waits anyway. More would take minutes.
const MAX_PREEMPTIONS: usize = 2;

/// Two callers, the connection task, and a reply that comes at any time. If a request is never sent, its caller waits
/// for ever, which loom reports.
fn every_request_is_sent(before_reply: Sleep, fault: Fault) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(MAX_PREEMPTIONS);
    model.check(move || {
        let world = Arc::new(World {
            queue: SubmitQueue::new(),
            driver: Mutex::new(Driver { before_reply, fault }),
            replied: AtomicBool::new(before_reply == Sleep::Idle),
            step: atomic::AtomicBool::new(false),
            task: Arc::new(Task(Notify::new())),
        });
        let task = thread::spawn({
            let world = world.clone();
            move || {
                while !world.drive(&sync::lock(&world.driver)) {
                    world.task.0.wait();
                }
            }
        });
        let caller = thread::spawn({
            let world = world.clone();
            move || world.call(fault)
        });
        let device = matches!(before_reply, Sleep::Holding | Sleep::Blocked).then(|| {
            let world = world.clone();
            thread::spawn(move || {
                world.replied.store(true, SeqCst);
                world.task.0.notify();
            })
        });
        world.call(fault);
        caller.join().expect("no panic");
        if let Some(device) = device {
            device.join().expect("no panic");
        }
        world.queue.abandon();
        task.join().expect("no panic");
    });
}

#[test]
fn an_idle_driver_is_used_by_callers() {
    every_request_is_sent(Sleep::Idle, Fault::None);
}

#[test]
fn a_driver_that_listens_is_woken_by_callers() {
    every_request_is_sent(Sleep::Listening, Fault::None);
}

#[test]
fn what_a_driver_holds_back_leaves_with_the_reply() {
    every_request_is_sent(Sleep::Holding, Fault::None);
}

#[test]
fn what_waits_while_nothing_can_be_sent_leaves_with_the_reply() {
    every_request_is_sent(Sleep::Blocked, Fault::None);
}

/// Runs one of the tests below, each with a planted mistake, in a process of its own: loom's report of a deadlock aborts it.
fn loses_a_request(test: &str) {
    let program = std::env::current_exe().expect("this program");
    let run = Command::new(program).args([test, "--exact", "--ignored", "--nocapture"]).output();
    let output = run.expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("deadlock; threads"), "{text}");
}

#[test]
fn a_driver_that_does_not_look_again_loses_a_request() {
    loses_a_request("planted_a_driver_that_does_not_look_again");
}

#[test]
fn a_caller_that_leaves_its_claim_loses_a_request() {
    loses_a_request("planted_a_caller_that_leaves_its_claim");
}

#[test]
#[ignore = "fails, as another test expects"]
fn planted_a_driver_that_does_not_look_again() {
    every_request_is_sent(Sleep::Idle, Fault::SleepsAnyway);
}

#[test]
#[ignore = "fails, as another test expects"]
fn planted_a_caller_that_leaves_its_claim() {
    every_request_is_sent(Sleep::Idle, Fault::LeavesClaim);
}
