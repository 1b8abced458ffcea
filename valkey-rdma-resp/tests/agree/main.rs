//! The scanners find the same frames as the decoders, in any input. `../fuzz` asks the same of a fuzzer.

mod check;

use proptest::collection::vec;
use proptest::prelude::*;

/// Input that looks like RESP, and is often wrong.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let line_end = prop_oneof![9 => Just(&b"\r\n"[..]), 1 => Just(&b"\n"[..]), 1 => Just(&b"\r"[..]), 1 => Just(&b"\r\r\n"[..])];
    let number = prop_oneof![
        9 => (-2..6_i64).prop_map(|number| number.to_string()),
        1 => Just(String::new()),
        1 => Just("+1".to_owned()),
        1 => Just("01".to_owned()),
        1 => Just("-0".to_owned()),
        1 => Just("?".to_owned()),
        1 => Just("1 ".to_owned()),
        1 => Just(i64::MAX.to_string()),
        1 => Just("9223372036854775808".to_owned()),
        1 => (0..20_000_usize).prop_map(|number| number.to_string()),
    ];
    let kind = prop_oneof![9 => proptest::sample::select(&b"*$+-:_#,(!=%~>|"[..]), 1 => any::<u8>()];
    let line = (kind, number, line_end.clone())
        .prop_map(|(kind, number, end)| [&[kind], number.as_bytes(), end].concat());
    let bulk = (vec(any::<u8>(), 0..6), line_end.clone())
        .prop_map(|(bytes, end)| [format!("${}\r\n", bytes.len()).as_bytes(), &bytes, end].concat());
    let text = (vec(proptest::sample::select(&b"ab 0\"'\\x\t\0"[..]), 0..8), line_end)
        .prop_map(|(text, end)| [&text, end].concat());
    vec(prop_oneof![4 => line, 4 => bulk, 1 => text], 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn replies_end_where_a_decoder_says(input in input(), step in 1..20_usize) {
        check::replies(&input, step);
    }

    #[test]
    fn commands_are_those_that_a_parser_finds(input in input(), step in 1..20_usize) {
        check::commands(&input, step);
    }
}
