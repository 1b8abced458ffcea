//! The feature bits of this project, which the two sides agree on before the first byte of data (clauses F-5 to F-9).

use core::fmt;
use core::ops::{BitAnd, BitOr, Sub};

/// The selector of this project's bits: "VR". Valkey defines none under it, and answers every selector with 0.
pub const FEATURE_SELECTOR: u16 = 0x5652;

/// A set of this project's feature bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FeatureSet(u64);

impl FeatureSet {
    /// No feature: the connection is one that every Valkey knows.
    pub const NONE: Self = Self(0);
    /// Bit 0: the bytes of both directions are a TLS connection, in which the client begins.
    pub const TLS: Self = Self(1 << 0);
    /// Bit 1: the server may move values between its memory and memory that the client exposes to it (area D of the clauses).
    pub const DIRECT: Self = Self(1 << 1);

    /// Returns the set with these bits, known or not.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the bits, as they are on the wire.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether no bit is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for FeatureSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for FeatureSet {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The bits of the first set that the second does not have.
impl Sub for FeatureSet {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The names of the bits, and unknown ones in hexadecimal: `TLS and 0x80`.
impl fmt::Display for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut separator = "";
        for (feature, name) in [(Self::TLS, "TLS"), (Self::DIRECT, "DIRECT")] {
            if self.contains(feature) {
                write!(f, "{separator}{name}")?;
                separator = " and ";
            }
        }
        match *self - (Self::TLS | Self::DIRECT) {
            Self::NONE => Ok(()),
            unknown => write!(f, "{separator}{:#x}", unknown.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_set_names_its_bits() {
        assert_eq!(FeatureSet::NONE.to_string(), "none");
        assert_eq!(FeatureSet::TLS.to_string(), "TLS");
        assert_eq!((FeatureSet::TLS | FeatureSet::DIRECT).to_string(), "TLS and DIRECT");
        assert_eq!(FeatureSet::from_bits(0x81).to_string(), "TLS and 0x80");
        assert_eq!(FeatureSet::from_bits(0x80).to_string(), "0x80");
    }

    #[test]
    fn sets_are_joined_cut_and_compared() {
        let both = FeatureSet::TLS | FeatureSet::DIRECT;
        assert!(both.contains(FeatureSet::TLS) && both.contains(FeatureSet::NONE));
        assert!(!FeatureSet::TLS.contains(both));
        assert_eq!(both & FeatureSet::TLS, FeatureSet::TLS);
        assert_eq!(both - FeatureSet::TLS, FeatureSet::DIRECT);
        assert_eq!(both.bits(), 3);
    }
}
