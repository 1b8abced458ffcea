use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use valkey_rdma_proto::work::{Outcome, WrId};

use super::*;

/// A device's queue as far as sharing sees it.
#[derive(Clone, Default)]
struct Device(Rc<RefCell<Entries>>);

#[derive(Default)]
struct Entries {
    lying: VecDeque<(u32, Completion)>,
    armed: bool,
    event: bool,
    waker: Option<Waker>,
    /// Completes just before the next event is asked for.
    ambush: Option<u32>,
    completed: u32,
    gone: bool,
}

impl Device {
    fn complete(&self, queue_pair: u32) {
        let mut entries = self.0.borrow_mut();
        let completion = Completion { wr_id: WrId::receive(entries.completed), outcome: Outcome::Sent };
        entries.completed += 1;
        entries.lying.push_back((queue_pair, completion));
        if std::mem::take(&mut entries.armed) {
            entries.event = true;
            if let Some(waker) = entries.waker.take() {
                waker.wake();
            }
        }
    }

    fn ambush(&self, queue_pair: u32) {
        self.0.borrow_mut().ambush = Some(queue_pair);
    }
}

impl Queue for Device {
    fn take(&mut self, sort: &mut dyn FnMut(u32, Completion)) -> Result<(), TransportError> {
        if self.0.borrow().gone {
            return Err(TransportError::DeviceRemoved);
        }
        let lying = std::mem::take(&mut self.0.borrow_mut().lying);
        lying.into_iter().for_each(|(queue_pair, completion)| sort(queue_pair, completion));
        Ok(())
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        let ambush = self.0.borrow_mut().ambush.take();
        if let Some(queue_pair) = ambush {
            self.complete(queue_pair);
        }
        self.0.borrow_mut().armed = true;
        Ok(())
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        let mut entries = self.0.borrow_mut();
        if std::mem::take(&mut entries.event) {
            return Poll::Ready(Ok(()));
        }
        entries.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// A task: whether it was woken.
#[derive(Default)]
struct Task(AtomicBool);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Task {
    fn was_woken(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A queue for `members` connections, whose queue pairs are numbered from 100, and their tasks.
struct Party {
    device: Device,
    sharing: Sharing<Device>,
    members: Vec<(Place, Arc<Task>)>,
    porter: Arc<Task>,
}

const DEPTH: u32 = 8;

impl Party {
    fn of(members: u32) -> Self {
        let device = Device::default();
        let mut sharing = Sharing::new(device.clone(), members * DEPTH);
        let join = |place| {
            let member = sharing.join(DEPTH).expect("room");
            sharing.name(member, 100 + place);
            (member, Arc::default())
        };
        let members = (0..members).map(join).collect();
        let mut party = Self { device, sharing, members, porter: Arc::default() };
        party.porter_runs();
        party
    }

    /// Calls with those to wake, and wakes them.
    fn with<T>(&mut self, call: impl FnOnce(&mut Sharing<Device>, &mut Vec<Waker>) -> T) -> T {
        let mut wake = Vec::new();
        let outcome = call(&mut self.sharing, &mut wake);
        wake.into_iter().for_each(Waker::wake);
        outcome
    }

    fn porter_runs(&mut self) {
        let waker = Waker::from(Arc::clone(&self.porter));
        if self.with(|sharing, wake| sharing.attend(&mut Context::from_waker(&waker), wake)).is_ready() {
            waker.wake();
        }
    }

    /// As often as it is woken. Returns how often that was.
    fn porter_runs_until_it_sleeps(&mut self) -> usize {
        std::iter::from_fn(|| self.porter.was_woken().then(|| self.porter_runs())).count()
    }

    fn arm(&mut self, place: usize) {
        let member = self.members[place].0;
        self.with(|sharing, wake| sharing.arm(member, wake)).expect("arms");
    }

    fn poll(&mut self, place: usize, limit: usize) -> Vec<u32> {
        let (member, mut out) = (self.members[place].0, Vec::new());
        self.with(|sharing, wake| sharing.poll(member, &mut out, limit, wake)).expect("polls");
        out.iter()
            .map(|completion| match completion.wr_id.kind() {
                valkey_rdma_proto::work::WrKind::Receive(number) => number,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn is_told(&mut self, place: usize) -> bool {
        self.event(place).is_some_and(|event| event.is_ok())
    }

    fn event(&mut self, place: usize) -> Option<Result<(), TransportError>> {
        let (member, task) = self.members[place].clone();
        match self.sharing.poll_event(member, &mut Context::from_waker(&Waker::from(task))) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }
}

#[test]
fn one_event_and_one_request_for_the_next_serve_all_who_are_ready() {
    const ALL: usize = 16;
    let mut party = Party::of(ALL as u32);
    let ask = |party: &mut Party| (0..ALL).for_each(|place| party.arm(place));
    ask(&mut party);
    assert_eq!(party.sharing.counts(), Counts { events: 0, arms: 1 });
    for round in 1..=10 {
        assert!((0..ALL).all(|place| !party.is_told(place)));
        (0..ALL as u32).for_each(|place| party.device.complete(100 + place));
        assert!(party.porter.was_woken());
        party.porter_runs();
        for place in 0..ALL {
            assert!(party.members[place].1.was_woken() && party.is_told(place));
            assert_eq!(party.poll(place, 64).len(), 1);
        }
        ask(&mut party);
        // The porter's second turn finds nothing more, and asks.
        assert_eq!(party.porter_runs_until_it_sleeps(), 1);
        assert_eq!(party.sharing.counts(), Counts { events: round, arms: round + 1 });
    }
}

#[test]
fn while_there_is_more_each_time_no_event_is_asked_for() {
    let mut party = Party::of(2);
    party.arm(0);
    assert!(!party.is_told(0));
    party.device.complete(100);
    for _ in 0..100 {
        assert!(party.porter.was_woken());
        party.porter_runs();
        assert!(party.is_told(0));
        assert_eq!(party.poll(0, 64).len(), 1);
        party.arm(0);
        assert!(!party.is_told(0));
        party.device.complete(100);
    }
    assert_eq!(party.sharing.counts(), Counts { events: 1, arms: 1 });
}

#[test]
fn who_finds_what_is_another_s_leaves_waking_to_the_porter() {
    let mut party = Party::of(2);
    party.arm(1);
    assert!(!party.is_told(1));
    party.device.complete(101);
    party.poll(0, 64);
    assert!(!party.members[1].1.was_woken());
    assert!(party.porter.was_woken());
    party.porter_runs();
    assert!(party.members[1].1.was_woken() && party.is_told(1));
}

#[test]
fn each_gets_its_own_in_order_and_no_more_than_asked() {
    let mut party = Party::of(2);
    [100, 101, 100, 101, 101].into_iter().for_each(|queue_pair| party.device.complete(queue_pair));
    assert_eq!(party.poll(1, 0), []);
    assert_eq!(party.poll(1, 2), [1, 3]);
    assert_eq!(party.poll(0, 64), [0, 2]);
    party.device.complete(101);
    assert_eq!(party.poll(1, 64), [4, 5], "what lay in the inbox, and what came since");
}

#[test]
fn what_came_before_an_event_was_asked_for_raises_none() {
    let mut party = Party::of(2);
    party.device.complete(100);
    party.arm(0);
    // Somebody else looks.
    party.poll(1, 64);
    assert!(!party.is_told(0));
    assert_eq!(party.poll(0, 64), [0]);
}

#[test]
fn a_member_that_left_leaves_nothing_to_the_next_with_its_number() {
    let mut party = Party::of(2);
    party.device.complete(100);
    let (leaving, _) = party.members[0].clone();
    assert!(party.sharing.join(1).is_none(), "all room is taken");
    assert!(!party.with(|sharing, wake| sharing.leave(leaving, wake)), "one is left");
    let next = party.sharing.join(DEPTH).expect("its room");
    party.sharing.name(next, 100);
    party.members[0].0 = next;
    assert_eq!(party.poll(0, 64), []);
    party.device.complete(100);
    assert_eq!(party.poll(0, 64), [1]);
}

#[test]
fn the_last_to_leave_wakes_the_porter() {
    let mut party = Party::of(2);
    let places = party.members.iter().map(|(place, _)| *place).collect::<Vec<_>>();
    let last = places.into_iter().map(|place| party.with(|sharing, wake| sharing.leave(place, wake)));
    assert_eq!(last.collect::<Vec<_>>(), [false, true]);
    assert!(party.porter.was_woken());
}

#[test]
fn a_queue_that_fails_tells_every_member_and_takes_no_more() {
    let mut party = Party::of(2);
    assert!(!party.is_told(0) && !party.is_told(1));
    party.device.complete(101);
    party.poll(0, 64);
    party.device.0.borrow_mut().gone = true;
    let (first, mut out) = (party.members[0].0, Vec::new());
    let error = party.with(|sharing, wake| sharing.poll(first, &mut out, 64, wake)).expect_err("gone");
    assert!(matches!(error, TransportError::DeviceRemoved), "the one who finds out has the cause: {error:?}");
    for place in 0..2 {
        assert!(party.members[place].1.was_woken());
        let error = party.event(place).expect("an event").expect_err("gone").to_string();
        assert!(error.contains("ibv_poll_cq"), "{error}");
    }
    let second = party.members[1].0;
    party.with(|sharing, wake| sharing.poll(second, &mut out, 64, wake)).expect_err("gone");
    assert_eq!(out.len(), 1, "what had come before is its own all the same");
    party.with(|sharing, wake| sharing.arm(second, wake)).expect_err("gone");
    party.porter_runs();
    assert!(!party.porter.was_woken());
    assert!(party.with(|sharing, wake| !sharing.leave(first, wake)));
    assert!(party.sharing.join(DEPTH).is_none());
}

#[test]
fn members_end_when_nobody_waits_for_the_queue_any_more() {
    let mut party = Party::of(1);
    assert!(!party.is_told(0));
    party.with(Sharing::abandon);
    assert!(party.members[0].1.was_woken());
    let error = party.event(0).expect("an event").expect_err("nobody waits");
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("runtime"), "{cause}");
}

/// What a member does next: it arms, polls, and sleeps when that found nothing, until it is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Arm,
    Poll,
    Sleep,
}

struct Worker {
    step: Step,
    taken: usize,
}

impl Party {
    /// One step of a member. `false`: it sleeps.
    fn works(&mut self, place: usize, worker: &mut Worker) -> bool {
        worker.step = match worker.step {
            Step::Arm => {
                self.arm(place);
                Step::Poll
            }
            Step::Poll => {
                let found = self.poll(place, 64).len();
                worker.taken += found;
                if found > 0 { Step::Poll } else { Step::Sleep }
            }
            Step::Sleep if self.is_told(place) => Step::Arm,
            Step::Sleep => return false,
        };
        true
    }
}

/// Two members and the porter, one step each at a time, in every order, with completions between any two steps or just
/// before the queue is armed: in the end everything has been taken, by members that only run when they are woken.
#[test]
fn no_wake_up_is_lost_in_any_order_of_steps() {
    const ACTIONS: u32 = 7;
    const LENGTH: u32 = 6;
    for order in 0..ACTIONS.pow(LENGTH) {
        let mut party = Party::of(2);
        let mut workers = [Step::Arm; 2].map(|step| Worker { step, taken: 0 });
        let mut left = order;
        for _ in 0..LENGTH {
            match left % ACTIONS {
                place @ (0 | 1) => {
                    let place = place as usize;
                    party.works(place, &mut workers[place]);
                }
                place @ (2 | 3) => party.device.complete(98 + place),
                place @ (4 | 5) => party.device.ambush(96 + place),
                _ if party.porter.was_woken() => party.porter_runs(),
                _ => {}
            }
            left /= ACTIONS;
        }
        // From here on everybody runs as long as anything wakes them. Who has not gone to sleep goes on.
        let mut awake = [true, true];
        while awake != [false, false] || party.porter_runs_until_it_sleeps() > 0 {
            for place in 0..2 {
                awake[place] = party.works(place, &mut workers[place]) || party.members[place].1.was_woken();
            }
        }
        let taken = workers.iter().map(|worker| worker.taken).sum::<usize>();
        assert_eq!(taken, party.device.0.borrow().completed as usize, "order {order}");
    }
}
