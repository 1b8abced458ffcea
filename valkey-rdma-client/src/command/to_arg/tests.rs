use super::*;

fn words(command: &Command) -> Vec<String> {
    command.words().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[test]
fn arguments_of_different_types_make_one_command() {
    let (key, value) = (String::from("key"), vec![b'v'; 3]);
    let command = crate::cmd!["SET", &key, value, "EX", 5, Some("NX"), None::<&str>, true, 'c'];
    assert_eq!(words(&command), ["SET", "key", "vvv", "EX", "5", "NX", "1", "c"]);
    assert_eq!(words(&crate::cmd!["PING"]), ["PING"]);
}

#[test]
fn members_of_slices_are_arguments_but_bytes_are_one() {
    let keys = vec!["a", "b"];
    let scores = [(1.5, "x")].map(|(score, member)| (score, Cow::Borrowed(member)));
    let mut command = crate::cmd!["DEL", &keys, keys, [1, 2], [b'x', b'y'], b"z", &[7_u8][..], Bytes::new()];
    for (score, member) in scores {
        command.push(score).push(member);
    }
    assert_eq!(words(&command), ["DEL", "a", "b", "a", "b", "1", "2", "xy", "z", "\u{7}", "", "1.5", "x"]);
}

#[test]
fn pairs_are_two_arguments_also_in_maps() {
    let fields = [("name", "Ada"), ("born", "1815")];
    let ages = BTreeMap::from([("ann", 1), ("bob", 2)]);
    let scores: Vec<(f64, String)> = vec![(1.5, "x".to_owned())];
    let one = HashMap::from([("k", b"v")]);
    let command = crate::cmd!["X", &fields, fields, &ages, ages, &scores[..], scores, &one, ("a", 7)];
    let expected = "X name Ada born 1815 name Ada born 1815 ann 1 bob 2 ann 1 bob 2 1.5 x 1.5 x k v a 7";
    assert_eq!(words(&command).join(" "), expected);
    assert_eq!(words(&crate::cmd!["X", BTreeMap::<String, i64>::new()]), ["X"]);
}

#[test]
fn numbers_are_sent_as_servers_read_them() {
    let integers = crate::cmd!["X", 7_u8, i64::MIN, u128::MAX, -0_i32];
    let limits = ["X", "7", "-9223372036854775808", "340282366920938463463374607431768211455", "0"];
    assert_eq!(words(&integers), limits);
    let floats = crate::cmd!["X", 1.0, -0.1, 1e300, 5e-324, f64::INFINITY, 0.1_f32];
    assert_eq!(words(&floats), ["X", "1", "-0.1", "1e300", "5e-324", "inf", "0.1"]);
    for float in [f64::MIN_POSITIVE, -1.797_693_134_862_315_7e308, 123_456_789.123_456_79] {
        let text = words(&crate::cmd!["X", float]).remove(1);
        assert_eq!(text.parse(), Ok(float), "{text}");
    }
}

#[test]
fn large_bytes_are_moved_or_shared_and_never_copied() {
    let vec = vec![b'v'; 9000];
    let string = "s".repeat(9000);
    let bytes = Bytes::from(vec![b'b'; 9000]);
    let places = [vec.as_ptr(), string.as_ptr(), bytes.as_ptr(), bytes.as_ptr()];
    let command = crate::cmd!["MSET", vec, string, &bytes, bytes];
    assert_eq!(command.words().skip(1).map(<[u8]>::as_ptr).collect::<Vec<_>>(), places);
}
