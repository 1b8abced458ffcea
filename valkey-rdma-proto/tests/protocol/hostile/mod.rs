//! A peer that says anything at any time: every input ends in data, nothing, or one typed error.

use proptest::prelude::*;

use victim::{Input, Story};

mod agreement;
pub mod decode;
mod replay;
mod stories;
pub mod victim;

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..12_u32, 2 => 90..110_u32, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn message() -> impl Strategy<Value = Input> {
    let register =
        (number(), number(), any::<bool>()).prop_map(|(len, key, high)| Input::Register { high, len, key });
    let opcode = (0..6_u8, any::<[u8; 30]>()).prop_map(|(opcode, rest)| [&[0, opcode], &rest[..]].concat());
    let other = prop_oneof![4 => opcode, 1 => prop::collection::vec(any::<u8>(), 0..40)];
    prop_oneof![6 => register, 5 => other.prop_map(Input::Message)]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        2 => Just(Input::Established),
        10 => message(),
        10 => (number(), number()).prop_map(|(byte_len, imm)| Input::Written { byte_len, imm }),
        6 => (1..50_u32).prop_map(|len| Input::Written { byte_len: len, imm: len }),
        4 => (0..40_u8).prop_map(Input::Sent),
        1 => (any::<u64>(), any::<u32>()).prop_map(|(id, n)| Input::Nonsense(id, n)),
        3 => any::<u16>().prop_map(Input::Elapse),
        8 => (0..80_u16).prop_map(Input::Write),
        8 => (0..80_u16).prop_map(Input::Read),
        1 => prop_oneof![
            Just(Input::Close),
            Just(Input::Failed),
            Just(Input::Disconnected),
            Just(Input::DeviceFailure)
        ],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// Clauses M-1, M-2, I-2, I-3, F-4: no panic, no work after the end, one end.
    #[test]
    fn any_input_in_any_state_ends_in_data_nothing_or_one_typed_error(
        server: bool,
        early: bool,
        inputs in prop::collection::vec(input(), 0..120),
    ) {
        Story { server, early, inputs }.play();
    }
}
