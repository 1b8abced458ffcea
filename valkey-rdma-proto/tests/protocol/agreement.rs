//! Features that two sides of this project agree on before the first byte of data: clauses F-5 to F-9.

mod client;
mod server;

use valkey_rdma_proto::wire::{ControlMessage, Features};
use valkey_rdma_proto::{CloseReason, Config, Event, FEATURE_SELECTOR, FeatureSet, Role};

use crate::pair::{End, Pair, Setup};
use crate::scripted::{PEER_MEMORY, Scripted};

const NONE: FeatureSet = FeatureSet::NONE;
const TLS: FeatureSet = FeatureSet::TLS;
const DIRECT: FeatureSet = FeatureSet::DIRECT;

const REGISTER: ControlMessage = ControlMessage::RegisterXferMemory(PEER_MEMORY);
const QUESTION: ControlMessage = answer(NONE);

/// A question is an answer without bits.
const fn answer(offered: FeatureSet) -> ControlMessage {
    ControlMessage::GetServerFeature(Features { select: FEATURE_SELECTOR, bits: offered.bits() })
}

const fn choice(chosen: FeatureSet) -> ControlMessage {
    ControlMessage::SetClientFeature(Features { select: FEATURE_SELECTOR, bits: chosen.bits() })
}

/// Established, before its peer has said anything.
fn scripted(config: Config, role: Role) -> Scripted {
    let mut scripted = Scripted::new(role, config);
    scripted.establish();
    scripted.acknowledge();
    scripted
}

fn client(wants: FeatureSet, requires: FeatureSet) -> Scripted {
    scripted(Config { wants, requires, ..Config::new(Role::Client) }, Role::Client)
}

fn server(offers: FeatureSet) -> Scripted {
    let mut scripted = scripted(Config { offers, ..Config::new(Role::Server) }, Role::Server);
    scripted.says(REGISTER);
    scripted
}

fn agreed(features: FeatureSet) -> Event {
    Event::Agreed { features }
}

/// Not a byte can be given, and none can be taken.
fn assert_mute(scripted: &mut Scripted) {
    assert_eq!(scripted.core.agreed(), None);
    assert_eq!((scripted.core.room(), scripted.write(1), scripted.read()), (0, 0, 0));
    assert!(scripted.data.is_empty());
}

fn setups(wants: FeatureSet, requires: FeatureSet, offers: FeatureSet) -> (Setup, Setup) {
    let (mut client, mut server) = (Setup::new(Role::Client), Setup::new(Role::Server));
    (client.config.wants, client.config.requires, server.config.offers) = (wants, requires, offers);
    (client, server)
}

#[test]
fn two_sides_agree_and_then_exchange_data_f5_f6_f7() {
    for (wants, requires, offers) in [
        (NONE, TLS, TLS),
        (DIRECT, TLS, TLS),
        (TLS, NONE, NONE),
        (NONE, NONE, TLS),
        (TLS, NONE, TLS | DIRECT),
    ] {
        let (client, server) = setups(wants, requires, offers);
        let mut pair = Pair::new(&client, &server);
        End::BOTH.iter().for_each(|&end| pair.establish(end));
        pair.settle();
        for _ in 0..5 {
            pair.transfer(End::Client, 1500);
            pair.transfer(End::Server, 1500);
        }
        let both = End::BOTH.map(|end| pair[end].core.agreed());
        assert_eq!(both, [Some((wants | requires) & offers); 2]);
        pair.check();
    }
}

/// The device reports that a connection is established half a round trip later to the server than to the client. The
/// server's Register leaves only then, and the question has arrived by that time.
#[test]
fn the_question_adds_no_round_trip_f5() {
    for requires in [NONE, TLS] {
        let (client, server) = setups(NONE, requires, TLS);
        let mut pair = Pair::new(&client, &server);
        pair.establish(End::Client);
        while pair.deliver(End::Client) {}
        pair.establish(End::Server);
        while pair.poll(End::Server) {}
        while pair.deliver(End::Server) {}
        while pair.poll(End::Client) {}
        assert!(pair[End::Client].core.is_connected());
        assert_eq!(pair[End::Client].core.agreed(), Some(requires));
    }
}

#[test]
fn a_client_that_requires_too_much_leaves_and_the_server_lives_f8() {
    let (client, server) = setups(NONE, TLS, NONE);
    let mut pair = Pair::new(&client, &server);
    End::BOTH.iter().for_each(|&end| pair.establish(end));
    pair.settle();
    assert_eq!(pair.close_reason(End::Client), Some(CloseReason::NotOffered { missing: TLS }));
    assert_eq!(pair.close_reason(End::Server), Some(CloseReason::Peer));
    assert_eq!(pair[End::Server].core.counters().bytes_received, 0);
}
