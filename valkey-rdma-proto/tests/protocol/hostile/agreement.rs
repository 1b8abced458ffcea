//! The same for a side that wants or offers features, and a peer that knows their selector.

use proptest::prelude::*;
use valkey_rdma_proto::wire::{ControlMessage, Features};
use valkey_rdma_proto::{FEATURE_SELECTOR, FeatureSet, Role};

use super::input;
use super::victim::{Input, Victim};

/// Any input, and often a question, an answer or a choice.
fn informed() -> impl Strategy<Value = Input> {
    let select = prop_oneof![6 => Just(FEATURE_SELECTOR), 1 => any::<u16>()];
    let bits = prop_oneof![4 => 0..4_u64, 1 => any::<u64>()];
    let about_features = (any::<bool>(), select, bits).prop_map(|(choice, select, bits)| {
        let features = Features { select, bits };
        let message = match choice {
            true => ControlMessage::SetClientFeature(features),
            false => ControlMessage::GetServerFeature(features),
        };
        Input::Message(message.encode().to_vec())
    });
    prop_oneof![3 => input(), 1 => about_features]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Clauses F-3, F-5 to F-8: no panic, no byte in either direction before it is agreed what the bytes are.
    #[test]
    fn any_input_to_a_side_with_features_ends_in_data_nothing_or_one_typed_error(
        server: bool,
        wants in 0..4_u64,
        requires in 0..4_u64,
        inputs in prop::collection::vec(informed(), 0..120),
    ) {
        let role = if server { Role::Server } else { Role::Client };
        let mut victim = Victim::with_features(role, FeatureSet::from_bits(wants), FeatureSet::from_bits(requires));
        victim.apply(&Input::Established);
        inputs.iter().for_each(|input| victim.apply(input));
    }
}
