//! What is sent and what must come back.
//!
//! A [`Script`] says which commands a request consists of; a [`Template`] turns a request's number into the bytes of a
//! command; [`Keys`] and [`Values`] say which key and which value; [`Expect`] says what the right reply is. All of it
//! depends on the request's number alone, so that one seed gives one workload whichever connection happens to send it,
//! and what a reply must hold needs no memory.

mod choice;
mod defaults;
mod expect;
mod keys;
mod populate;
mod script;
mod sizes;
mod template;
mod values;

pub(crate) use choice::Distribution;
pub(crate) use defaults::{DefaultTest, TestOptions, tests_from_list};
pub(crate) use expect::Expect;
pub(crate) use keys::Keys;
pub(crate) use populate::Populate;
pub(crate) use script::{Mix, Script, Step};
pub(crate) use sizes::Sizes;
pub(crate) use template::{Sink, Template};
pub(crate) use values::{SHARED_FROM, Values};

/// A 64-bit mixing function: every input bit changes about half of the output bits.
///
/// Source: the output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps a hash to `0..len` without a division: the high half of a 128-bit product.
pub(crate) fn below(hash: u64, len: u64) -> u64 {
    ((u128::from(hash) * u128::from(len)) >> 64) as u64
}

/// Maps a hash to a number from 0 to below 1.
pub(crate) fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}
