//! What must hold whatever the order of events.

use super::*;

/// What a member does next: it arms, polls, and sleeps when that found nothing, until it is notified.
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

/// Two members and the dispatcher, one step each at a time, in every order, with completions between any two steps or just
/// before the queue is armed, and with a member that asks again while it waits: in the end everything has been taken, by
/// members that, once asleep, only run when they are woken.
#[test]
fn no_wake_up_is_lost_in_any_order_of_steps() {
    const ACTIONS: u32 = 8;
    const LENGTH: u32 = 6;
    for order in 0..ACTIONS.pow(LENGTH) {
        let mut party = Party::of(2);
        let mut workers = [Step::Arm; 2].map(|step| Worker { step, taken: 0 });
        let mut awake = [true, true];
        let mut left = order;
        for _ in 0..LENGTH {
            match left % ACTIONS {
                place @ (0 | 1) => {
                    let place = place as usize;
                    awake[place] = party.works(place, &mut workers[place]);
                }
                place @ (2 | 3) => party.device.complete(98 + place),
                place @ (4 | 5) => party.device.ambush(96 + place),
                6 if workers[0].step == Step::Sleep => {
                    workers[0].step = Step::Arm;
                    awake[0] = true;
                }
                7 if party.dispatcher.was_woken() => party.porter_runs(),
                _ => {}
            }
            left /= ACTIONS;
        }
        // From here on everybody runs as long as anything wakes them, and only then. Who has not gone to sleep goes on.
        while awake != [false, false] || party.porter_runs_until_it_sleeps() > 0 {
            for place in 0..2 {
                awake[place] |= party.members[place].1.was_woken();
                awake[place] = awake[place] && party.works(place, &mut workers[place]);
            }
        }
        let taken = workers.iter().map(|worker| worker.taken).sum::<usize>();
        assert_eq!(taken, party.device.0.borrow().completed as usize, "order {order}");
    }
}
