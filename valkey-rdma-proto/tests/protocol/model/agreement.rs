//! Worlds in which the sides agree on features, or find that they cannot (clauses F-5 to F-8).

use valkey_rdma_proto::FeatureSet;
use valkey_rdma_proto::work::SendOp;

use super::*;

const NONE: FeatureSet = FeatureSet::NONE;
const TLS: FeatureSet = FeatureSet::TLS;
const DIRECT: FeatureSet = FeatureSet::DIRECT;

/// A world with a handshake, and what its sides agree on; `None` if the client leaves because it cannot have what it
/// requires.
#[derive(Clone, Debug)]
struct Agreeing {
    world: World,
    agreed: Option<FeatureSet>,
}

impl Agreeing {
    fn new(says: [u64; 2], wants: FeatureSet, requires: FeatureSet, offers: FeatureSet) -> Self {
        let mut world = World { handshake: true, ..World::new([1, 2], says) };
        (world.client.config.wants, world.client.config.requires) = (wants, requires);
        world.server.config.offers = offers;
        let agreed = offers.contains(requires).then_some((wants | requires) & offers);
        Self { world, agreed }
    }

    fn closing(self, closers: &'static [End]) -> Self {
        Self { world: self.world.closing(closers), ..self }
    }

    /// No byte was written, read, or is on its way before this side knows what is agreed.
    fn is_silent_before(pair: &Pair) -> bool {
        End::BOTH.into_iter().filter(|&end| pair[end].core.agreed().is_none()).all(|end| {
            let side = &pair[end];
            let is_data = |op| !matches!(op, SendOp::Send | SendOp::Write { .. });
            let none_sent = !side.sends.iter().any(|send| is_data(send.request.op));
            none_sent
                && side.written + side.read == 0
                && side.core.readable().is_none()
                && side.core.room() == 0
        })
    }

    fn is_finished(&self, pair: &Pair) -> bool {
        if self.agreed.is_none() && self.world.closers.is_empty() {
            let read = End::BOTH.map(|end| pair[end].read);
            let left = matches!(pair.close_reason(End::Client), Some(CloseReason::NotOffered { .. }));
            return left && pair.close_reason(End::Server).is_some() && read == [0, 0];
        }
        self.world.is_finished(pair)
    }
}

impl Model for Agreeing {
    type State = Pair;
    type Action = Step;

    fn init_states(&self) -> Vec<Pair> {
        self.world.init_states()
    }

    fn actions(&self, pair: &Pair, steps: &mut Vec<Step>) {
        self.world.actions(pair, steps);
    }

    fn next_state(&self, pair: &Pair, step: Step) -> Option<Pair> {
        self.world.next_state(pair, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LOST, |_, pair: &Pair| pair.faults().is_empty()),
            Property::always(STUCK, |model: &Agreeing, pair: &Pair| {
                !model.world.possible(pair).is_empty() || model.is_finished(pair)
            }),
            Property::always("the end is reported once and nothing follows it", |_, pair: &Pair| {
                World::ends_once(pair)
            }),
            Property::always("both sides agree on the same", |model: &Agreeing, pair: &Pair| {
                let known = End::BOTH.into_iter().filter_map(|end| pair[end].core.agreed());
                // A side with nothing to agree on knows that from the start.
                known.into_iter().all(|features| features == model.agreed.unwrap_or(NONE))
            }),
            Property::always("not a byte before that", |_, pair: &Pair| Self::is_silent_before(pair)),
            Property::always("neither side breaks a clause", |_, pair: &Pair| {
                let reasons = End::BOTH.into_iter().filter_map(|end| pair.close_reason(end));
                !reasons.into_iter().any(|reason| matches!(reason, CloseReason::Protocol(_)))
            }),
            Property::sometimes(
                "everything arrives, or the client leaves",
                |model: &Agreeing, pair: &Pair| {
                    let said = model.agreed.map_or([0, 0], |_| model.world.says);
                    End::BOTH.into_iter().all(|end| pair[end.other()].read == said[end as usize])
                },
            ),
        ]
    }
}

#[test]
fn both_sides_agree_before_a_byte_in_any_order_f5_f6_f7() {
    prove("TLS required and offered", Agreeing::new([1, 1], NONE, TLS, TLS));
    prove("DIRECT wanted, both offered", Agreeing::new([2, 1], DIRECT, NONE, TLS | DIRECT));
}

#[test]
fn a_side_alone_with_its_features_does_without_in_any_order_f5_f7() {
    prove("wanted, not offered", Agreeing::new([1, 1], TLS, NONE, NONE));
    prove("wanted, another offered", Agreeing::new([1, 1], DIRECT, NONE, TLS));
    prove("offered, not wanted", Agreeing::new([1, 1], NONE, NONE, TLS));
}

#[test]
fn a_client_that_cannot_have_what_it_requires_leaves_in_any_order_f8() {
    prove("required, not offered", Agreeing::new([1, 1], NONE, TLS, NONE));
    prove("required, another offered", Agreeing::new([1, 1], DIRECT, TLS, DIRECT));
}

#[test]
fn a_close_while_features_are_open_f7_x1() {
    prove("agreeing, client closes", Agreeing::new([1, 0], NONE, TLS, TLS).closing(&[End::Client]));
    prove("agreeing, server closes", Agreeing::new([1, 1], NONE, TLS, TLS).closing(&[End::Server]));
    prove("offered, server closes", Agreeing::new([1, 1], NONE, NONE, TLS).closing(&[End::Server]));
}

#[test]
fn keepalives_while_features_are_open_k1_f5() {
    let second = Duration::from_secs(1);
    let mut model = Agreeing::new([1, 0], NONE, TLS, TLS);
    model.world.until = second;
    (model.world.client.config.keepalive, model.world.server.config.keepalive) = (Some(second), Some(second));
    prove("agreeing, keepalives of both", model);
}

#[test]
#[ignore = "takes minutes: ./dev model runs it"]
fn larger_worlds_f5_f6_f7_k1_x1() {
    let second = Duration::from_secs(1);
    let mut model = Agreeing::new([1, 1], DIRECT, TLS, TLS | DIRECT);
    model.world.until = second;
    (model.world.client.config.keepalive, model.world.server.config.keepalive) = (Some(second), Some(second));
    prove("agreeing, keepalives of both, both directions", model);
    prove("agreeing, both directions", Agreeing::new([2, 2], NONE, TLS, TLS));
    prove("agreeing, both close", Agreeing::new([1, 1], NONE, TLS, TLS).closing(&End::BOTH));
}
