//! Worlds in which the server transfers (area D). Each transfer has two pieces, and bytes of its stream before and after it.

use valkey_rdma_proto::FeatureSet;

use super::*;

const READ: Direction = Direction::Read;
const WRITE: Direction = Direction::Write;

fn direct(windows: [u32; 2], says: [u64; 2], transfers: &'static [Direction]) -> World {
    let mut world = World { transfers, ..World::new(windows, says) };
    world.client.config.requires = FeatureSet::DIRECT;
    world.server.config.offers = FeatureSet::DIRECT;
    world
}

#[test]
fn replies_follow_transfers_in_any_order_d3() {
    prove("a write", direct([1, 1], [0, 2], &[WRITE]));
    prove("a read", direct([2, 1], [0, 2], &[READ]));
    prove("a write and a read", direct([2, 1], [0, 1], &[WRITE, READ]));
    prove("a write, and a client that writes", direct([2, 2], [1, 1], &[WRITE]));
}

#[test]
fn a_close_among_transfers_at_any_moment_d6_x1() {
    let closing = |closers| direct([2, 1], [0, 1], &[WRITE]).closing(closers);
    prove("server transfers and closes", closing(&[End::Server]));
    prove("server transfers, client closes", closing(&[End::Client]));
}
