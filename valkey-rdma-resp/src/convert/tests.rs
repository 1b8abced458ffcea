use bytes::Bytes;

use super::*;

fn bulk(text: &str) -> Value {
    Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

fn ok<T: FromValue + std::fmt::Debug>(value: Value) -> T {
    value.convert().expect("converts")
}

fn wrong<T: FromValue + std::fmt::Debug>(value: Value) -> String {
    value.convert::<T>().expect_err("does not convert").to_string()
}

/// What to do about a missing value.
const OPTION: &str = "; ask for an Option where a value may be missing";

#[test]
fn integers_come_from_integers_and_digits_in_range() {
    assert_eq!(ok::<i64>(Value::Int(-7)), -7);
    assert_eq!(ok::<u8>(Value::Int(255)), 255);
    assert_eq!(ok::<u64>(bulk("18446744073709551615")), u64::MAX);
    assert_eq!(
        ok::<i128>(Value::BigNumber(Bytes::from_static(b"170141183460469231731687303715884105727"))),
        i128::MAX
    );
    assert_eq!(wrong::<u8>(Value::Int(256)), "expected an unsigned integer of 8 bits, got the integer 256");
    assert_eq!(wrong::<u8>(Value::Int(-1)), "expected an unsigned integer of 8 bits, got the integer -1");
    assert_eq!(wrong::<u8>(bulk("seven")), "expected an unsigned integer of 8 bits, got a string of 5 bytes");
    assert_eq!(wrong::<u32>(Value::Int(-1)), "expected an unsigned integer of 32 bits, got the integer -1");
    assert_eq!(wrong::<i64>(bulk("seven")), "expected an integer of 64 bits, got a string of 5 bytes");
    assert_eq!(wrong::<i64>(Value::Nil), format!("expected an integer of 64 bits, got nothing{OPTION}"));
}

#[test]
fn doubles_and_truth() {
    assert_eq!(ok::<f64>(Value::Double(1.5)), 1.5);
    assert_eq!(ok::<f64>(bulk("inf")), f64::INFINITY);
    assert!(ok::<bool>(Value::Bool(true)) && ok::<bool>(Value::Int(1)) && !ok::<bool>(Value::Int(0)));
    assert!(ok::<bool>(Value::Simple(Bytes::from_static(b"OK"))));
    assert_eq!(wrong::<bool>(Value::Int(2)), "expected a truth value, got the integer 2");
    // What a `bool` is sent as comes back as a string, or as a score.
    assert!(ok::<bool>(bulk("1")) && !ok::<bool>(bulk("0")));
    assert!(ok::<bool>(Value::Double(1.0)) && !ok::<bool>(Value::Double(0.0)));
    for no_truth in ["", "2", "01", "true", "false", "yes"] {
        let text = format!("expected a truth value, got a string of {} bytes", no_truth.len());
        assert_eq!(wrong::<bool>(bulk(no_truth)), text, "{no_truth}");
    }
    assert!(!ok::<bool>(Value::Nil), "the reply of SET NX");
    assert_eq!(ok::<f32>(bulk("0.1")), 0.1);
}

/// RESP3 has ZSCORE as a double, RESP2 as a string.
#[test]
fn doubles_without_a_fraction_are_integers_and_all_are_text() {
    assert_eq!(ok::<i64>(Value::Double(2.0)), 2);
    assert_eq!(ok::<i64>(Value::Double(-9_007_199_254_740_992.0)), -(1 << 53));
    // The digits of RESP2: the fewest that identify the double.
    assert_eq!(ok::<i64>(Value::Double(-106_499_568_297_664_624.0)), -106_499_568_297_664_620);
    assert_eq!(ok::<u8>(Value::Double(-0.0)), 0);
    let wanted = "expected an integer of 64 bits, got the double";
    for number in [1.5, 1e19, f64::INFINITY, f64::NAN, 1e300] {
        assert_eq!(wrong::<i64>(Value::Double(number)), format!("{wanted} {number}"));
    }
    assert!(
        wrong::<u8>(Value::Double(256.0)).contains("8 bits")
            && wrong::<u8>(Value::Double(-1.0)).contains("8 bits")
    );
    let texts = [(2.0, "2"), (1.5, "1.5"), (1e21, "1e+21"), (f64::NEG_INFINITY, "-inf"), (f64::NAN, "nan")];
    for (number, text) in texts {
        assert_eq!(ok::<String>(Value::Double(number)), text);
        assert_eq!(ok::<Bytes>(Value::Double(number)), text);
    }
    assert_eq!((ok::<i64>(Value::Bool(true)), ok::<String>(Value::Bool(false))), (1, "0".to_owned()));
}

#[test]
fn arrays_and_characters_have_a_fixed_length() {
    assert_eq!(ok::<[u8; 2]>(bulk("ab")), *b"ab");
    assert_eq!(ok::<[i64; 2]>(Value::Array(vec![Value::Int(1), bulk("2")])), [1, 2]);
    let members = "expected as many members as the type has, got";
    assert_eq!(wrong::<[u8; 2]>(bulk("abc")), format!("{members} a string of 3 bytes"));
    assert_eq!(wrong::<[i64; 2]>(Value::Array(vec![Value::Int(1)])), format!("{members} an array of 1"));
    assert_eq!(ok::<char>(bulk("\u{e4}")), '\u{e4}');
    for not_one in ["", "ab"] {
        let text = format!("expected one character, got a string of {} bytes", not_one.len());
        assert_eq!(wrong::<char>(bulk(not_one)), text);
    }
}

/// CONFIG GET with the name of one parameter.
#[test]
fn a_map_is_a_tuple_of_its_keys_and_values() {
    let one = Value::Map(vec![(bulk("maxmemory"), bulk("0"))]);
    assert_eq!(ok::<(String, u64)>(one.clone()), ("maxmemory".to_owned(), 0));
    assert_eq!(ok::<Option<(String, u64)>>(one), Some(("maxmemory".to_owned(), 0)));
    let two = Value::Map(vec![(bulk("a"), Value::Int(1)), (bulk("b"), Value::Int(2))]);
    assert_eq!(ok::<(String, i64, String, i64)>(two), ("a".to_owned(), 1, "b".to_owned(), 2));
}

#[test]
fn the_unit_takes_every_reply_but_an_error() {
    for value in [
        Value::Nil,
        Value::Int(1),
        bulk("x"),
        Value::Simple(Bytes::from_static(b"QUEUED")),
        Value::Array(vec![]),
    ] {
        ok::<()>(value);
    }
    let error = Value::Error(ServerError::from_reply(b"ERR no"));
    assert_eq!(wrong::<()>(error), "expected no error, got the error \"ERR no\"");
}

#[test]
fn strings_are_binary_safe() {
    let bytes = Bytes::from_static(b"\xff\0\r\n");
    assert_eq!(ok::<Bytes>(Value::Bulk(bytes.clone())), bytes);
    assert_eq!(ok::<Vec<u8>>(Value::Bulk(bytes.clone())), bytes);
    assert_eq!(ok::<String>(Value::Int(5)), "5");
    assert_eq!(wrong::<String>(Value::Bulk(bytes)), "expected text in UTF-8, got a string of 4 bytes");
}

#[test]
fn nothing_is_none_and_not_the_empty_string() {
    assert_eq!(ok::<Option<String>>(Value::Nil), None);
    assert_eq!(ok::<Option<String>>(bulk("")), Some(String::new()));
    assert_eq!(wrong::<String>(Value::Nil), format!("expected a string, got nothing{OPTION}"));
}

/// HGETALL and ZPOPMIN answer so for a key that does not exist.
#[test]
fn an_empty_reply_is_none_where_the_type_needs_members() {
    #[derive(Debug, PartialEq)]
    struct User {
        name: String,
    }
    impl FromValue for User {
        fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
            Ok(Self { name: value.into_fields()?.take("name")? })
        }
    }
    for empty in [Value::Map(vec![]), Value::Array(vec![]), Value::Set(vec![])] {
        assert_eq!(ok::<Option<User>>(empty.clone()), None);
        assert_eq!(ok::<Option<(String, f64)>>(empty), None);
    }
    assert_eq!(ok::<Option<Vec<String>>>(Value::Array(vec![])), Some(vec![]));
    assert_eq!(ok::<Option<HashMap<String, String>>>(Value::Map(vec![])), Some(HashMap::new()));
    let one = |key: &str| Value::Map(vec![(bulk(key), bulk("Ada"))]);
    assert_eq!(ok::<Option<User>>(one("name")), Some(User { name: "Ada".to_owned() }));
    assert!(wrong::<Option<User>>(one("age")).starts_with("\"name\" of the reply: "), "a field is missing");
}

#[test]
fn maps_come_in_every_form_a_server_gives_them() {
    let wanted = HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
    let pair = |key: &str, number| Value::Array(vec![bulk(key), Value::Int(number)]);
    assert_eq!(
        ok::<HashMap<String, i64>>(Value::Map(vec![(bulk("a"), Value::Int(1)), (bulk("b"), bulk("2"))])),
        wanted
    );
    assert_eq!(
        ok::<HashMap<String, i64>>(Value::Array(vec![bulk("a"), bulk("1"), bulk("b"), bulk("2")])),
        wanted
    );
    assert_eq!(ok::<HashMap<String, i64>>(Value::Array(vec![pair("a", 1), pair("b", 2)])), wanted);
    assert_eq!(
        ok::<Vec<(String, f64)>>(Value::Array(vec![bulk("x"), bulk("0.5"), bulk("x"), bulk("2")])),
        [("x".to_owned(), 0.5), ("x".to_owned(), 2.0)]
    );
    assert_eq!(
        wrong::<HashMap<String, i64>>(Value::Array(vec![bulk("a")])),
        "expected keys and values, got an array of 1"
    );
}

#[test]
fn members_convert_one_by_one() {
    let items = || Value::Set(vec![bulk("1"), Value::Int(2)]);
    assert_eq!(ok::<Vec<i64>>(items()), [1, 2]);
    assert_eq!(ok::<HashSet<String>>(items()), HashSet::from(["1".to_owned(), "2".to_owned()]));
    assert_eq!(ok::<(i64, String)>(items()), (1, "2".to_owned()));
    assert_eq!(wrong::<(i64, i64, i64)>(items()), "expected an array of 3, got an array of 2");
    assert_eq!(wrong::<Vec<i64>>(bulk("1")), "expected an array, got a string of 1 bytes");
    assert_eq!(
        ok::<Vec<Option<String>>>(Value::Array(vec![bulk("a"), Value::Nil])),
        [Some("a".to_owned()), None]
    );
}

#[test]
fn an_error_says_which_member_does_not_convert() {
    let items = || vec![bulk("1"), bulk("x")];
    let expected = "member 1 of the reply: expected an integer of 64 bits, got a string of 1 bytes";
    assert_eq!(wrong::<Vec<i64>>(Value::Array(items())), expected);
    assert_eq!(wrong::<(i64, i64)>(Value::Array(items())), expected);
    assert_eq!(wrong::<HashSet<i64>>(Value::Set(items())), expected);
    assert_eq!(wrong::<BTreeSet<i64>>(Value::Set(items())), expected);
    // A value goes by its key.
    let named = "\"1\" of the reply: expected an integer of 64 bits, got a string of 1 bytes";
    assert_eq!(wrong::<HashMap<i64, i64>>(Value::Array(items())), named);
    let keys = Value::Map(vec![(bulk("x"), bulk("1"))]);
    assert_eq!(wrong::<HashMap<i64, i64>>(keys), expected.replace("member 1", "member 0"));
    let narrow = wrong::<Vec<u8>>(Value::Array(vec![Value::Int(1), Value::Int(256)]));
    assert_eq!(narrow, "member 1 of the reply: expected an unsigned integer of 8 bits, got the integer 256");
    let pairs = Value::Map(vec![(bulk("1"), bulk("2")), (bulk("3"), bulk("x"))]);
    assert_eq!(
        wrong::<HashMap<i64, i64>>(pairs.clone()),
        named.replace('1', "3").replacen("of 3 b", "of 1 b", 1)
    );
    let error = Value::Array(vec![Value::Nil, pairs]).convert::<(Value, Vec<(i64, i64)>)>().expect_err("x");
    assert_eq!(error.members(), [1, 1]);
    assert!(error.to_string().starts_with("\"3\" of member 1 of the reply: expected"), "{error}");
    let pair = |key: &str| Value::Array(vec![bulk("0"), Value::Array(vec![bulk(key), bulk("x")])]);
    for (key, name) in [("a\n", r#""a\n""#.to_owned()), (&"k".repeat(65), "member 1".to_owned())] {
        let error = pair(key).convert::<(Value, BTreeMap<String, i64>)>().expect_err("x").to_string();
        assert!(error.starts_with(&format!("{name} of member 1 of the reply")), "{error}");
    }
}

#[test]
fn errors_inside_a_reply_are_told_with_their_text() {
    let error = ServerError::from_reply(b"WRONGTYPE no");
    assert_eq!(ok::<Result<Value, ServerError>>(Value::Error(error.clone())), Err(error.clone()));
    assert_eq!(
        wrong::<i64>(Value::Error(error)),
        "expected an integer of 64 bits, got the error \"WRONGTYPE no\""
    );
}
