//! A command with placeholders, compiled once and then filled for each request.

use super::keys::{Keys, Slot};
use super::values::{SHARED_FROM, Values};
use crate::drive::Connection;

/// A command whose placeholders are filled from a request's number.
///
/// Compiled to runs of fixed bytes with places for 12 digits and for values, so that filling it is little more than
/// copying. A value belongs to the number drawn last before it in the same command, as in `SET key:__rand_int__
/// __data__`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    /// The whole command, encoded.
    pieces: Vec<Piece>,
    /// The same as arguments, the name first: each without its length.
    args: Vec<Vec<Piece>>,
    slots: Vec<Slot>,
    inline: bool,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// Bytes as they are.
    Fixed(Vec<u8>),
    /// Twelve digits: the number of this slot.
    Digits(usize),
    /// `$LENGTH\r\n` of an argument of `fixed` bytes and the values of these slots.
    Length { fixed: usize, values: Vec<Option<usize>> },
    /// The value that belongs to this slot's number; to 0 if there is none.
    Value(Option<usize>),
}

/// Where a filled command goes.
pub(crate) trait Sink {
    /// Bytes to copy.
    fn bytes(&mut self, bytes: &[u8]);
    /// A value, which may be shared instead of being copied.
    fn value(&mut self, values: &Values, key: u64);
}

const RAND_INT: &[u8] = b"__rand_int__";
const DATA: &[u8] = b"__data__";
/// All of `__rand_1st__` to `__rand_9th__`, in that order.
const SHARED: [&[u8]; 9] = [
    b"__rand_1st__",
    b"__rand_2nd__",
    b"__rand_3rd__",
    b"__rand_4th__",
    b"__rand_5th__",
    b"__rand_6th__",
    b"__rand_7th__",
    b"__rand_8th__",
    b"__rand_9th__",
];
/// Digits of a number, as long as its placeholder.
const DIGITS: usize = 12;
/// Room for most arguments, so that putting one together allocates once.
const TYPICAL: usize = 64;

impl Template {
    /// Compiles a command, given as its name and arguments. Without `random` (no `-r`), placeholders for numbers stay
    /// as they are, as in valkey-benchmark.
    pub(crate) fn new<A: AsRef<[u8]>>(args: &[A], random: bool) -> Template {
        let name = args.first().map(|name| String::from_utf8_lossy(name.as_ref()).to_uppercase());
        let of = args.iter().map(|arg| count(arg.as_ref(), RAND_INT)).sum::<usize>() as u16;
        let mut template = Template {
            pieces: Vec::new(),
            args: Vec::new(),
            slots: Vec::new(),
            inline: false,
            name: name.unwrap_or_default(),
        };
        template.fixed(format!("*{}\r\n", args.len()).as_bytes());
        for arg in args {
            template.argument(arg.as_ref(), random, of);
        }
        template
    }

    /// A command in its inline form: a line, not an array.
    pub(crate) fn inline(line: &str) -> Template {
        let pieces = vec![Piece::Fixed(format!("{line}\r\n").into_bytes())];
        Template { pieces, args: Vec::new(), slots: Vec::new(), inline: true, name: line.to_uppercase() }
    }

    /// The command's name in upper case.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a line instead of an array.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline
    }

    /// How many numbers a request draws.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The number in slot `slot` of request `request`; 0 without that slot.
    pub(crate) fn number(&self, keys: &Keys, request: u64, slot: usize) -> u64 {
        self.slots.get(slot).map_or(0, |&slot| keys.number(request, slot))
    }

    /// Writes the command of request `request`, encoded.
    pub(crate) fn fill(&self, keys: &Keys, values: &Values, request: u64, out: &mut impl Sink) {
        self.fill_pieces(&self.pieces, keys, values, request, out);
    }

    /// The command of request `request` for a client library, which encodes it itself.
    pub(crate) fn command<C: Connection>(&self, keys: &Keys, values: &Values, request: u64) -> C::Command {
        let mut command = match self.args.first().map(Vec::as_slice) {
            Some([Piece::Fixed(name)]) => C::command(name),
            name => C::command(&self.argument_of(name.unwrap_or_default(), keys, values, request)),
        };
        for arg in self.args.iter().skip(1) {
            match &arg[..] {
                [] => C::push(&mut command, b""),
                [Piece::Fixed(bytes)] => C::push(&mut command, bytes),
                [Piece::Digits(slot)] => {
                    C::push(&mut command, &digits(keys.number(request, self.slots[*slot])));
                }
                [Piece::Value(slot)] => {
                    let key = slot.map_or(0, |slot| keys.number(request, self.slots[slot]));
                    // A large value is handed over, not copied.
                    if values.len_of(key) < SHARED_FROM {
                        C::push(&mut command, values.of(key));
                    } else {
                        C::push_shared(&mut command, values.shared(key));
                    }
                }
                several => C::push(&mut command, &self.argument_of(several, keys, values, request)),
            }
        }
        command
    }

    fn fill_pieces(&self, pieces: &[Piece], keys: &Keys, values: &Values, request: u64, out: &mut impl Sink) {
        let number = |slot: usize| keys.number(request, self.slots[slot]);
        for piece in pieces {
            match piece {
                Piece::Fixed(bytes) => out.bytes(bytes),
                Piece::Digits(slot) => out.bytes(&digits(number(*slot))),
                Piece::Length { fixed, values: inside } => {
                    let lens = inside.iter().map(|slot| values.len_of(slot.map_or(0, number)));
                    put_length(fixed + lens.sum::<usize>(), out);
                }
                Piece::Value(slot) => out.value(values, slot.map_or(0, number)),
            }
        }
    }

    /// Bytes of values in the command of request `request`.
    pub(crate) fn payload(&self, keys: &Keys, values: &Values, request: u64) -> u64 {
        let lens = self.pieces.iter().map(|piece| match piece {
            Piece::Value(slot) => {
                values.len_of(slot.map_or(0, |slot| keys.number(request, self.slots[slot]))) as u64
            }
            _ => 0,
        });
        lens.sum()
    }

    /// The first argument after the name in the command of request `request`.
    pub(crate) fn first_argument(&self, keys: &Keys, values: &Values, request: u64) -> Option<Vec<u8>> {
        self.args.get(1).map(|pieces| self.argument_of(pieces, keys, values, request))
    }

    fn argument_of(&self, pieces: &[Piece], keys: &Keys, values: &Values, request: u64) -> Vec<u8> {
        let mut whole = Collected(Vec::with_capacity(TYPICAL));
        self.fill_pieces(pieces, keys, values, request, &mut whole);
        whole.0
    }

    fn fixed(&mut self, bytes: &[u8]) {
        match self.pieces.last_mut() {
            Some(Piece::Fixed(last)) => last.extend_from_slice(bytes),
            _ => self.pieces.push(Piece::Fixed(bytes.to_vec())),
        }
    }

    /// Compiles one argument: its length, then its parts.
    fn argument(&mut self, arg: &[u8], random: bool, of: u16) {
        let mut parts = Vec::new();
        let mut fixed = Vec::new();
        let mut rest = arg;
        while let Some(&first) = rest.first() {
            let (part, len) = match self.placeholder(rest, random, of) {
                Some(found) => found,
                None => {
                    fixed.push(first);
                    rest = &rest[1..];
                    continue;
                }
            };
            if !fixed.is_empty() {
                parts.push(Piece::Fixed(std::mem::take(&mut fixed)));
            }
            parts.push(part);
            rest = &rest[len..];
        }
        if !fixed.is_empty() {
            parts.push(Piece::Fixed(fixed));
        }
        let len = |part: &Piece| match part {
            Piece::Fixed(bytes) => bytes.len(),
            Piece::Digits(_) => DIGITS,
            _ => 0,
        };
        let fixed = parts.iter().map(len).sum();
        let values: Vec<_> = parts
            .iter()
            .filter_map(|part| if let Piece::Value(slot) = part { Some(*slot) } else { None })
            .collect();
        if values.is_empty() {
            self.fixed(format!("${fixed}\r\n").as_bytes());
        } else {
            self.pieces.push(Piece::Length { fixed, values });
        }
        for part in &parts {
            match part {
                Piece::Fixed(bytes) => self.fixed(bytes),
                part => self.pieces.push(part.clone()),
            }
        }
        self.fixed(b"\r\n");
        self.args.push(parts);
    }

    /// The placeholder that `text` starts with, and its length.
    fn placeholder(&mut self, text: &[u8], random: bool, of: u16) -> Option<(Piece, usize)> {
        if text.starts_with(DATA) {
            return Some((Piece::Value(self.slots.len().checked_sub(1)), DATA.len()));
        }
        if !random {
            return None;
        }
        let slot = if text.starts_with(RAND_INT) {
            let before = self.slots.iter().filter(|slot| matches!(slot, Slot::Each { .. })).count();
            Slot::Each { position: before as u16, of }
        } else {
            let counter = SHARED.iter().position(|name| text.starts_with(name))?;
            Slot::Shared(counter as u8)
        };
        self.slots.push(slot);
        Some((Piece::Digits(self.slots.len() - 1), DIGITS))
    }
}

fn count(text: &[u8], what: &[u8]) -> usize {
    text.windows(what.len()).filter(|window| *window == what).count()
}

fn digits(mut number: u64) -> [u8; DIGITS] {
    let mut text = [b'0'; DIGITS];
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text
}

/// Writes `$LENGTH\r\n`.
fn put_length(len: usize, out: &mut impl Sink) {
    out.bytes(b"$");
    out.bytes(itoa::Buffer::new().format(len).as_bytes());
    out.bytes(b"\r\n");
}

/// Collects an argument.
struct Collected(Vec<u8>);

impl Sink for Collected {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn value(&mut self, values: &Values, key: u64) {
        self.0.extend_from_slice(values.of(key));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::workload::{Distribution, Sizes};

    fn filled(args: &[&str], keys: Keys, values: &Values, request: u64) -> Vec<Vec<u8>> {
        let template = Template::new(args, keys.len.is_some());
        template.args.iter().map(|pieces| template.argument_of(pieces, &keys, values, request)).collect()
    }

    fn texts(args: &[&str], keys: Keys, request: u64) -> Vec<String> {
        let values = Values::new(Sizes::fixed(3), 1, false);
        let args = filled(args, keys, &values, request);
        args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
    }

    #[test]
    fn sequential_placeholders_count_as_in_valkey_benchmark() {
        let keys = Keys::sequential(NonZeroU64::new(10));
        let args = ["zadd", "z:__rand_1st__", "__rand_int__", "m:__rand_int__:__rand_1st__:__rand_2nd__"];
        let second = texts(&args, keys, 1);
        assert_eq!(second[1], "z:000000000001");
        assert_eq!(second[2], "000000000002");
        assert_eq!(second[3], "m:000000000003:000000000001:000000000001");
    }

    #[test]
    fn without_a_keyspace_number_placeholders_stay() {
        assert_eq!(texts(&["GET", "key:__rand_int__"], Keys::SINGLE, 4), ["GET", "key:__rand_int__"]);
    }

    #[test]
    fn a_value_belongs_to_the_key_before_it() {
        let keys = Keys::random(NonZeroU64::new(1000), 7, Distribution::Uniform);
        let values = Values::new("1-40".parse().unwrap(), 1000, false);
        let args = ["MSET", "k:__rand_int__", "__data__", "k:__rand_int__", "a__data__b__data__"];
        let filled = filled(&args, keys, &values, 5);
        let key = |at: usize| String::from_utf8_lossy(&filled[at][2..]).parse::<u64>().unwrap();
        let payload = Template::new(&args, true).payload(&keys, &values, 5);
        assert_eq!(payload as usize, values.of(key(1)).len() + 2 * values.of(key(3)).len());
        assert_eq!(filled[2], values.of(key(1)));
        assert_eq!(filled[4], [b"a", values.of(key(3)), b"b", values.of(key(3))].concat());
        assert_ne!(key(1), key(3));
    }

    #[test]
    fn the_encoding_is_resp() {
        let mut out = Collected(Vec::new());
        Template::new(&["SET", "k", ""], false).fill(
            &Keys::SINGLE,
            &Values::new(Sizes::fixed(1), 1, false),
            0,
            &mut out,
        );
        assert_eq!(out.0, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
    }
}
