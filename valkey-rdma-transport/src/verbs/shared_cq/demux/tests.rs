use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use valkey_rdma_proto::work::{Outcome, WrId};

use super::*;

mod ends;
mod orders;
mod turns;

/// A device's queue as far as demux sees it.
#[derive(Clone, Default)]
struct Device(Rc<RefCell<Entries>>);

#[derive(Default)]
struct Entries {
    lying: VecDeque<(u32, Completion)>,
    armed: bool,
    event: bool,
    waker: Option<Waker>,
    /// Completes just before the next event is armed for.
    ambush: Option<u32>,
    completed: u32,
    /// Which call fails.
    fails: Option<Call>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Take,
    Arm,
    PollEvent,
}

impl Device {
    fn complete(&self, queue_pair: u32) {
        let mut entries = self.0.borrow_mut();
        let completion = Completion { wr_id: WrId::receive(entries.completed), outcome: Outcome::Sent };
        entries.completed += 1;
        entries.lying.push_back((queue_pair, completion));
        if mem::take(&mut entries.armed) {
            entries.event = true;
            if let Some(waker) = entries.waker.take() {
                waker.wake();
            }
        }
    }

    fn ambush(&self, queue_pair: u32) {
        self.0.borrow_mut().ambush = Some(queue_pair);
    }

    /// Completes without the event that was armed for.
    fn complete_silently(&self, queue_pair: u32) {
        self.0.borrow_mut().armed = false;
        self.complete(queue_pair);
    }

    fn fails_from_now_on(&self, call: Call) {
        self.0.borrow_mut().fails = Some(call);
    }

    fn check(&self, call: Call) -> Result<(), TransportError> {
        if self.0.borrow().fails == Some(call) { Err(TransportError::DeviceRemoved) } else { Ok(()) }
    }
}

impl Queue for Device {
    fn take(&mut self, sort: &mut dyn FnMut(u32, Completion)) -> Result<(), TransportError> {
        self.check(Call::Take)?;
        let lying = mem::take(&mut self.0.borrow_mut().lying);
        lying.into_iter().for_each(|(queue_pair, completion)| sort(queue_pair, completion));
        Ok(())
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        self.check(Call::Arm)?;
        let ambush = self.0.borrow_mut().ambush.take();
        if let Some(queue_pair) = ambush {
            self.complete(queue_pair);
        }
        self.0.borrow_mut().armed = true;
        Ok(())
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.check(Call::PollEvent)?;
        let mut entries = self.0.borrow_mut();
        if mem::take(&mut entries.event) {
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
    demux: CqDemux<Device>,
    members: Vec<(MemberId, Arc<Task>)>,
    dispatcher: Arc<Task>,
}

const DEPTH: u32 = 8;

impl Party {
    fn of(members: u32) -> Self {
        let device = Device::default();
        let mut demux = CqDemux::new(device.clone(), members * DEPTH);
        let join = |place| {
            let member = demux.join(DEPTH).expect("room");
            demux.bind_qp(member, 100 + place, &mut Vec::new());
            (member, Arc::default())
        };
        let members = (0..members).map(join).collect();
        let mut party = Self { device, demux, members, dispatcher: Arc::default() };
        party.porter_runs();
        party
    }

    /// Calls with those to wake, and wakes them.
    fn with<T>(&mut self, call: impl FnOnce(&mut CqDemux<Device>, &mut Vec<Waker>) -> T) -> T {
        let mut wake = Vec::new();
        let outcome = call(&mut self.demux, &mut wake);
        wake.into_iter().for_each(Waker::wake);
        outcome
    }

    fn porter_runs(&mut self) {
        let waker = Waker::from(Arc::clone(&self.dispatcher));
        if self.with(|demux, wake| demux.poll_dispatch(&mut Context::from_waker(&waker), wake)).is_ready() {
            waker.wake();
        }
    }

    /// As often as it is woken. Returns how often that was.
    fn porter_runs_until_it_sleeps(&mut self) -> usize {
        std::iter::from_fn(|| self.dispatcher.was_woken().then(|| self.porter_runs())).count()
    }

    fn arm(&mut self, place: usize) {
        let member = self.members[place].0;
        self.with(|demux, wake| demux.arm(member, wake)).expect("arms");
    }

    fn poll(&mut self, place: usize, limit: usize) -> Vec<u32> {
        let (member, mut out) = (self.members[place].0, Vec::new());
        self.with(|demux, wake| demux.poll(member, &mut out, limit, wake)).expect("polls");
        out.iter()
            .map(|completion| match completion.wr_id.kind() {
                valkey_rdma_proto::work::WrKind::Receive(number) => number,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn asks_and_sleeps(&mut self, place: usize) {
        self.arm(place);
        assert!(!self.is_told(place));
    }

    fn is_told(&mut self, place: usize) -> bool {
        self.event(place).is_some_and(|event| event.is_ok())
    }

    /// Every member was woken, and is notified why.
    fn all_have_ended(&mut self, because: SharedCqError) {
        for place in 0..self.members.len() {
            assert!(self.members[place].1.was_woken());
            match self.event(place) {
                Some(Err(TransportError::SharedQueue { cause })) => assert_eq!(cause, because),
                other => panic!("{other:?}"),
            }
        }
    }

    fn event(&mut self, place: usize) -> Option<Result<(), TransportError>> {
        let (member, task) = self.members[place].clone();
        match self.demux.poll_event(member, &mut Context::from_waker(&Waker::from(task))) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }
}
