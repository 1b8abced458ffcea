//! The same steps on two sides that want and offer features (clauses F-5 to F-8).

use valkey_rdma_proto::FeatureSet;

use super::*;

fn features() -> impl Strategy<Value = FeatureSet> {
    (0..4_u64).prop_map(FeatureSet::from_bits)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Both sides agree on what one offers and the other asks for, and then every byte arrives; or the client leaves,
    /// and not one did.
    #[test]
    fn both_sides_agree_and_every_byte_arrives_or_the_client_leaves_before_the_first(
        (mut client, mut server) in setups(),
        (wants, requires, offers) in (features(), features(), features()),
        lazy: bool,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        (client.config.wants, client.config.requires, server.config.offers) = (wants, requires, offers);
        let mut pair = Pair::new(&client, &server);
        pair.lazy = lazy;
        run(&mut pair, &steps);
        pair.lazy = false;
        for end in End::BOTH {
            if !pair[end].core.is_closed() {
                pair.establish(end);
            }
        }
        pair.settle();
        if !offers.contains(requires) {
            let left = CloseReason::NotOffered { missing: requires - offers };
            prop_assert_eq!(pair.close_reason(End::Client), Some(left));
            prop_assert!(pair.close_reason(End::Server).is_some());
            prop_assert_eq!(pair[End::Client].written, 0);
            prop_assert_eq!(pair[End::Client].read, 0);
            return Ok(());
        }
        // A server that offers something waits for its client's first bytes.
        for end in End::BOTH {
            pair.transfer(end, 100);
        }
        let agreed = (wants | requires) & offers;
        for end in End::BOTH {
            prop_assert_eq!(pair[end].core.agreed(), Some(agreed));
            prop_assert_eq!(pair[end].read, pair[end.other()].written);
            let open = if end == End::Client { wants | requires } else { offers };
            let reported = pair[end].events.iter().filter(|event| matches!(event, Event::Agreed { .. })).count();
            prop_assert_eq!(reported, usize::from(!open.is_empty()));
            prop_assert_eq!(pair[end].events.len(), reported + 1);
        }
    }
}
