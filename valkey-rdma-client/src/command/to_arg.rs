//! [`ToArg`]: what can be an argument of a command.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
/// | `HashSet`, `BTreeSet` | one argument for each member |
/// | `HashMap`, `BTreeMap` | key and value for each pair |
///
/// A reply with what was sent [converts back](crate::FromValue) to the same value.
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
    note = "these types can: strings, `char`, bytes (`&[u8]`, `Vec<u8>`, `Bytes`), integers, floats, `bool`; `Option`s, pairs, slices, arrays, vectors, sets and maps of them",
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

macro_rules! sets {
    ($($set:ident<T $(, $hasher:ident)?>),*) => { $(
        impl<T: ToArg $(, $hasher)?> ToArg for $set<T $(, $hasher)?> {
            fn add_to(&self, command: &mut Command) {
                self.iter().for_each(|member| member.add_to(command));
            }

            fn move_to(self, command: &mut Command) {
                self.into_iter().for_each(|member| member.move_to(command));
            }
        }
    )* };
}

sets!(HashSet<T, S>, BTreeSet<T>);

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
mod reading_back_tests;
#[cfg(test)]
mod tests;
