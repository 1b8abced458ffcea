//! [`ToArg`]: what can be an argument of a command.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::Command;

/// A value that can be an argument of a [`Command`]: of [`cmd!`](crate::cmd), [`Command::arg`] and
/// [`Client::command`](crate::Client::command).
///
/// | type | sent as |
/// |---|---|
/// | strings, `char` | their text |
/// | `[u8]`, `[u8; N]`, `Vec<u8>`, `Bytes` | their bytes |
/// | integers, `f32`, `f64` | their digits |
/// | `bool` | `1` or `0` |
/// | `Option<T>` | its value; nothing for `None` |
/// | slices, arrays and vectors of other types | one argument for each member |
/// | pairs | both, one after the other |
/// | `HashMap`, `BTreeMap` | key and value for each pair |
///
/// `String`, `Vec<u8>` and `Bytes` of at least 8 KiB are not copied if they are passed by value. `Bytes` are not copied if they
/// are passed by reference either.
///
/// ```
/// use valkey_rdma_client::{Command, ToArg};
///
/// /// A user's key, and when it expires.
/// struct Session {
///     user: u64,
///     seconds: Option<u32>,
/// }
///
/// impl ToArg for Session {
///     fn add_to(&self, command: &mut Command) {
///         command.push(format!("session:{}", self.user));
///         if let Some(seconds) = self.seconds {
///             command.push("EX").push(seconds);
///         }
///     }
/// }
///
/// let _command = Command::new("GETEX").arg(Session { user: 17, seconds: Some(60) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a command",
    label = "not an argument",
    note = "these types can: strings, `char`, bytes (`&[u8]`, `Vec<u8>`, `Bytes`), integers, floats, `bool`; `Option`s, pairs, slices, arrays, vectors and maps of them",
    note = "pass anything that has a text as `value.to_string()`, or implement `ToArg` for types of your own"
)]
pub trait ToArg {
    /// Adds the value to a command, as one argument, several or none.
    fn add_to(&self, command: &mut Command);

    /// Adds the value by moving it. Types that own large bytes avoid a copy here.
    fn move_to(self, command: &mut Command)
    where
        Self: Sized,
    {
        self.add_to(command);
    }

    /// Adds several values, each as [`add_to`](Self::add_to) does. Only bytes are one argument together.
    fn add_all_to(values: &[Self], command: &mut Command)
    where
        Self: Sized,
    {
        values.iter().for_each(|value| value.add_to(command));
    }

    /// Adds several values by moving them, each as [`move_to`](Self::move_to) does. Only bytes are one argument together.
    fn move_all_to(values: Vec<Self>, command: &mut Command)
    where
        Self: Sized,
    {
        values.into_iter().for_each(|value| value.move_to(command));
    }
}

impl<T: ToArg + ?Sized> ToArg for &T {
    fn add_to(&self, command: &mut Command) {
        (**self).add_to(command);
    }
}

impl<T: ToArg + ?Sized> ToArg for &mut T {
    fn add_to(&self, command: &mut Command) {
        (**self).add_to(command);
    }
}

macro_rules! smart_pointers {
    ($($pointer:ident),*) => { $(
        impl<T: ToArg + ?Sized> ToArg for $pointer<T> {
            fn add_to(&self, command: &mut Command) {
                (**self).add_to(command);
            }
        }
    )* };
}

smart_pointers!(Box, Rc, Arc);

impl ToArg for str {
    fn add_to(&self, command: &mut Command) {
        command.push_copied(self.as_bytes());
    }
}

impl ToArg for String {
    fn add_to(&self, command: &mut Command) {
        command.push_copied(self.as_bytes());
    }

    fn move_to(self, command: &mut Command) {
        self.into_bytes().move_to(command);
    }
}

impl ToArg for char {
    fn add_to(&self, command: &mut Command) {
        command.push_copied(self.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

impl<T: ToArg + ToOwned + ?Sized> ToArg for Cow<'_, T> {
    fn add_to(&self, command: &mut Command) {
        (**self).add_to(command);
    }
}

impl ToArg for Bytes {
    fn add_to(&self, command: &mut Command) {
        command.push_shared(self.clone());
    }

    fn move_to(self, command: &mut Command) {
        command.push_shared(self);
    }
}

impl ToArg for BytesMut {
    fn add_to(&self, command: &mut Command) {
        command.push_copied(self);
    }

    fn move_to(self, command: &mut Command) {
        command.push_shared(self.freeze());
    }
}

/// Bytes are one argument together.
impl ToArg for u8 {
    fn add_to(&self, command: &mut Command) {
        command.push_copied(itoa::Buffer::new().format(*self).as_bytes());
    }

    fn add_all_to(values: &[Self], command: &mut Command) {
        command.push_copied(values);
    }

    fn move_all_to(values: Vec<Self>, command: &mut Command) {
        command.push_shared(values.into());
    }
}

macro_rules! integers {
    ($($type:ty),*) => { $(
        impl ToArg for $type {
            fn add_to(&self, command: &mut Command) {
                command.push_copied(itoa::Buffer::new().format(*self).as_bytes());
            }
        }
    )* };
}

integers!(i8, i16, u16, i32, u32, i64, u64, i128, u128, isize, usize);

macro_rules! floats {
    ($($type:ty),*) => { $(
        impl ToArg for $type {
            fn add_to(&self, command: &mut Command) {
                let mut text = Digits::default();
                // The shortest digits that are read back as the same number, with an exponent where that is shorter.
                if write!(text, "{self:?}").is_ok() {
                    let digits = text.as_bytes();
                    command.push_copied(digits.strip_suffix(b".0").unwrap_or(digits));
                }
            }
        }
    )* };
}

floats!(f32, f64);

/// The text of a number, which needs no memory of its own.
#[derive(Default)]
struct Digits {
    /// The longest `f64` has 24 characters.
    text: [u8; 32],
    len: usize,
}

impl Digits {
    fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

impl Write for Digits {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        self.text.get_mut(self.len..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl ToArg for bool {
    fn add_to(&self, command: &mut Command) {
        command.push_copied(if *self { b"1" } else { b"0" });
    }
}

impl<T: ToArg> ToArg for Option<T> {
    fn add_to(&self, command: &mut Command) {
        if let Some(value) = self {
            value.add_to(command);
        }
    }

    fn move_to(self, command: &mut Command) {
        if let Some(value) = self {
            value.move_to(command);
        }
    }
}

impl<T: ToArg> ToArg for [T] {
    fn add_to(&self, command: &mut Command) {
        T::add_all_to(self, command);
    }
}

impl<T: ToArg, const N: usize> ToArg for [T; N] {
    fn add_to(&self, command: &mut Command) {
        T::add_all_to(self, command);
    }
}

impl<T: ToArg> ToArg for Vec<T> {
    fn add_to(&self, command: &mut Command) {
        T::add_all_to(self, command);
    }

    fn move_to(self, command: &mut Command) {
        T::move_all_to(self, command);
    }
}

/// Two arguments, such as a field and its value.
impl<A: ToArg, B: ToArg> ToArg for (A, B) {
    fn add_to(&self, command: &mut Command) {
        self.0.add_to(command);
        self.1.add_to(command);
    }

    fn move_to(self, command: &mut Command) {
        self.0.move_to(command);
        self.1.move_to(command);
    }
}

impl<K: ToArg, V: ToArg, S> ToArg for HashMap<K, V, S> {
    fn add_to(&self, command: &mut Command) {
        self.iter().for_each(|pair| pair.move_to(command));
    }

    fn move_to(self, command: &mut Command) {
        self.into_iter().for_each(|pair| pair.move_to(command));
    }
}

impl<K: ToArg, V: ToArg> ToArg for BTreeMap<K, V> {
    fn add_to(&self, command: &mut Command) {
        self.iter().for_each(|pair| pair.move_to(command));
    }

    fn move_to(self, command: &mut Command) {
        self.into_iter().for_each(|pair| pair.move_to(command));
    }
}

#[cfg(test)]
mod tests {
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
        let mut command =
            crate::cmd!["DEL", &keys, keys, [1, 2], [b'x', b'y'], b"z", &[7_u8][..], Bytes::new()];
        for (score, member) in scores {
            command.push(score).push(member);
        }
        assert_eq!(
            words(&command),
            ["DEL", "a", "b", "a", "b", "1", "2", "xy", "z", "\u{7}", "", "1.5", "x"]
        );
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
}
