//! [`Ranges`]: which bytes of a memory are free, and which devices may use.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::piece::Piece;

/// All bytes that no [`DirectSlice`](super::DirectSlice) has, in pieces by their offset. No piece is empty, and none overlap.
#[derive(Default)]
pub(super) struct Ranges {
    free: BTreeMap<u32, Piece>,
    /// Devices may use these.
    lent: BTreeMap<u32, Lent>,
}

/// A range that devices may use.
struct Lent {
    bytes: Piece,
    /// Ends the connection whose peer may use it.
    cut: Option<Cut>,
}

/// Ends a connection, unless it is gone.
pub(crate) type Cut = Arc<dyn Fn() + Send + Sync>;

impl Ranges {
    /// All bytes of a memory, which are free.
    pub(super) fn of(bytes: Piece) -> Self {
        Self { free: BTreeMap::from([(0, bytes)]), ..Self::default() }
    }

    /// Cuts `len` bytes out of a free piece. `None`: one of them is not free.
    pub(super) fn take(&mut self, offset: u32, len: usize) -> Option<Piece> {
        let (&first, piece) = self.free.range_mut(..=offset).next_back()?;
        let skip = (offset - first) as usize;
        if piece.len() < skip + len {
            return None;
        }
        let mut bytes = piece.split_off(skip);
        if piece.is_empty() {
            self.free.remove(&first);
        }
        let rest = bytes.split_off(len);
        if !rest.is_empty() {
            self.free.insert(offset + len as u32, rest);
        }
        Some(bytes)
    }

    /// Puts a piece back, and joins it with its neighbours.
    pub(super) fn put_back(&mut self, mut offset: u32, mut bytes: Piece) {
        let before = self.free.range(..offset).next_back();
        if let Some((first, _)) = before
            .map(|(first, piece)| (*first, piece.len()))
            .filter(|(first, len)| *first as usize + len == offset as usize)
            && let Some(mut left) = self.free.remove(&first)
        {
            left.unsplit(bytes);
            (offset, bytes) = (first, left);
        }
        if let Some(right) = self.free.remove(&(offset + bytes.len() as u32)) {
            bytes.unsplit(right);
        }
        self.free.insert(offset, bytes);
    }

    /// The offset and the length of each free piece.
    #[cfg(all(test, feature = "emulated"))]
    pub(super) fn free(&self) -> Vec<(u32, usize)> {
        self.free.iter().map(|(offset, bytes)| (*offset, bytes.len())).collect()
    }

    /// Lets devices use a piece, which is not empty. `cut` ends the connection whose peer may use it too.
    pub(super) fn lend(&mut self, offset: u32, bytes: Piece, cut: Option<Cut>) {
        self.lent.insert(offset, Lent { bytes, cut });
    }

    /// Takes a piece back from devices: the one that was lent at this offset.
    pub(super) fn take_back(&mut self, offset: u32) -> Piece {
        self.lent.remove(&offset).map(|lent| lent.bytes).unwrap_or_default()
    }

    /// What ends the connections whose peers may use a byte of the range.
    pub(super) fn cuts(&self, range: Range<usize>) -> Vec<Cut> {
        let end = u32::try_from(range.end).unwrap_or(u32::MAX);
        let reaches = |(first, lent): &(&u32, &Lent)| **first as usize + lent.bytes.len() > range.start;
        self.lent.range(..end).filter(reaches).filter_map(|(_, lent)| lent.cut.clone()).collect()
    }

    /// Shows what makes up `range`, as ranges of lent pieces in order, up to the first byte that is not lent: `false`.
    #[cfg(feature = "emulated")]
    pub(super) fn visit_lent(
        &mut self,
        range: Range<usize>,
        visit: &mut dyn FnMut(&mut Piece, Range<usize>),
    ) -> bool {
        let mut at = range.start;
        while at < range.end {
            let Some((&first, lent)) = self.lent.range_mut(..=at as u32).next_back() else { return false };
            let bytes = &mut lent.bytes;
            let first = first as usize;
            let end = bytes.len().min(range.end - first);
            if at - first >= end {
                return false;
            }
            visit(bytes, at - first..end);
            at = first + end;
        }
        true
    }
}
