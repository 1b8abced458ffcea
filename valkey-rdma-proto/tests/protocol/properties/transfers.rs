//! The same steps on two sides that have agreed on transfers, with transfers among them (area D).

use valkey_rdma_proto::{Direction, FeatureSet};

use super::*;

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Write), Just(Direction::Read)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever is delayed, a value is in its place when its reply is read, and everything completes (clauses D-3, L-1).
    #[test]
    fn transfers_come_before_their_replies_and_all_complete(
        (mut client, mut server) in setups(),
        lazy: bool,
        rounds in prop::collection::vec(
            (prop::option::of((direction(), 0..200_u32)), prop::collection::vec(step(), 0..30)),
            0..20,
        ),
    ) {
        client.config.requires = FeatureSet::DIRECT;
        server.config.offers = FeatureSet::DIRECT;
        let mut pair = Pair::new(&client, &server);
        pair.establish(End::Client);
        pair.establish(End::Server);
        pair.settle();
        pair.lazy = lazy;
        for (transfer, steps) in rounds {
            if let Some((direction, len)) = transfer {
                pair.direct(direction, len);
            }
            run(&mut pair, &steps);
        }
        pair.lazy = false;
        for end in End::BOTH {
            pair.pump(end);
            pair.transfer(end, 100);
        }
        for end in End::BOTH {
            prop_assert_eq!(pair[end].read, pair[end.other()].written);
            prop_assert!(!pair[end].core.is_closed());
        }
        let server = &pair[End::Server];
        prop_assert_eq!(server.core.transferred(), server.transfers.len() as u64);
    }
}
