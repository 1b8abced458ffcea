use super::*;

fn memory() -> DirectMemory {
    DirectMemory::allocate(100).expect("a length")
}

fn free(memory: &DirectMemory) -> Vec<(u32, usize)> {
    lock(&memory.0.ranges).free()
}

#[test]
fn what_is_taken_cannot_be_taken_again_until_it_is_dropped() {
    let memory = memory();
    let first = memory.take(10..20).expect("free");
    for range in [10..20, 0..11, 19..30, 12..13, 0..100] {
        let error = memory.take(range.clone()).expect_err("taken");
        assert_eq!(error, DirectMemoryError::Taken { range });
    }
    let others = [memory.take(0..10).expect("free"), memory.take(20..100).expect("free")];
    assert_eq!(free(&memory), []);
    drop(first);
    drop(others);
    assert_eq!(free(&memory), [(0, 100)], "neighbours are joined");
}

#[test]
fn ranges_come_back_in_any_order_and_keep_their_bytes() {
    let memory = memory();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let mut slices: Vec<_> = (0..4).map(|n| memory.take(25 * n..25 * n + 25).ok()).collect();
        for (n, slice) in (1..).zip(slices.iter_mut().flatten()) {
            slice.fill(n);
        }
        for place in order {
            slices[place] = None;
        }
        assert_eq!(free(&memory), [(0, 100)]);
        let all = memory.take(0..100).expect("free");
        assert_eq!((all[0], all[25], all[50], all[99]), (1, 2, 3, 4));
    }
}

#[test]
fn a_lent_range_is_taken_and_only_a_device_reaches_it() {
    let memory = memory();
    let lent = [memory.take(10..20).expect("free").lend(None), memory.take(20..30).expect("free").lend(None)];
    assert!(memory.take(15..16).is_err());
    assert!(memory.is_lent(10..30) && !memory.is_lent(9..11) && !memory.is_lent(29..31));
    assert!(memory.copy_in(18, &[1, 2, 3, 4]), "over both");
    let mut out = Vec::new();
    assert!(memory.copy_to(17..23, &mut out));
    assert_eq!(out, [0, 1, 2, 3, 4, 0]);
    let [first, second] = lent;
    assert_eq!(first.take_back()[8..], [1, 2]);
    drop(second);
    assert_eq!(free(&memory), [(0, 100)]);
}

#[test]
fn frozen_bytes_are_known_to_writers_and_hold_their_range() {
    use crate::send_memory::PinnedSlice;
    let memory = memory();
    let mut slice = memory.take(30..40).expect("free");
    slice.fill(7);
    let value = slice.freeze();
    let pinned = PinnedSlice::of(&value).expect("known");
    assert_eq!((pinned.range(), pinned.bytes()), (30..40, &[7; 10][..]));
    drop(value);
    assert!(memory.take(30..40).is_err(), "being sent");
    drop(pinned);
    assert!(memory.take(30..40).is_ok());
}

/// As another language would have it: it notices the end of the last part.
struct Arena {
    bytes: BytesMut,
    start: usize,
    owner: Arc<()>,
}

impl AsRef<[u8]> for Arena {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Arena {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

// SAFETY: the vector behind `bytes` stays where it is, and each part has its own bytes. The owner is not needed for it: no device in
// hardware registers it.
#[expect(unsafe_code, reason = "a promise of implementors")]
unsafe impl ForeignBytes for Arena {
    fn start(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.start)
    }

    fn size(&self) -> usize {
        self.bytes.len()
    }

    fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        self.owner.clone()
    }

    fn split_off(&mut self, at: usize) -> Box<dyn ForeignBytes> {
        assert!(0 < at && at < self.bytes.len(), "inside");
        let bytes = self.bytes.split_off(at);
        Box::new(Self { bytes, start: self.start + at, owner: self.owner.clone() })
    }

    fn unsplit(&mut self, next: Box<dyn ForeignBytes>) {
        let next: Box<dyn Any> = next;
        self.bytes.unsplit(next.downcast::<Self>().expect("of this type").bytes);
    }
}

#[test]
fn foreign_memory_is_taken_lent_and_put_together_like_any_other() {
    let owner = Arc::new(());
    let mut bytes = BytesMut::zeroed(100);
    let start = bytes.as_mut_ptr().expose_provenance();
    let arena = Arena { bytes, start, owner: owner.clone() };
    let memory = DirectMemory::from_foreign(Box::new(arena)).expect("a length");
    assert_eq!((memory.len(), memory.sent().start()), (100, start));

    let mut slice = memory.take(10..60).expect("free");
    assert_eq!(slice.as_ptr().addr(), start + 10);
    let mut rest = slice.split_off(20);
    rest.fill(3);
    let lent = slice.lend(None);
    assert!(memory.is_lent(10..30) && memory.copy_in(28, &[1, 2]));
    let mut slice = lent.take_back();
    slice.unsplit(rest);
    assert_eq!(slice[18..21], [1, 2, 3]);
    assert_eq!(slice.freeze().as_ptr().addr(), start + 10);
    assert_eq!(free(&memory), [(0, 100)]);

    let whole = memory.take(0..100).expect("free");
    drop(memory);
    assert!(Arc::strong_count(&owner) > 1, "kept by the slice");
    drop(whole);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn memory_is_in_use_while_its_bytes_are_lent() {
    let memory = memory();
    // Without bytes, so it knows only the address, as bytes of another owner do.
    let value = memory.take(30..40).expect("free").freeze().slice(2..2);
    let weak = memory.downgrade();
    let lent = memory.lend(value);
    drop(memory);
    assert!(!weak.is_unused());
    drop(lent);
    assert!(weak.is_unused());
}

#[test]
fn bytes_of_the_memory_are_lent_without_taking_them() {
    use crate::send_memory::PinnedSlice;
    let memory = memory();
    let value = memory.take(30..40).expect("free").freeze();
    let lent = memory.lend(value.slice(2..8));
    drop(value);
    assert!(PinnedSlice::of(&lent).is_some());
    let other = Bytes::from(vec![1; 10]);
    assert_eq!(memory.lend(other.clone()).as_ptr(), other.as_ptr());
}

#[test]
fn empty_ranges_disturb_nothing_and_others_stay_inside() {
    let memory = memory();
    let lent = memory.take(10..20).expect("free").lend(None);
    drop(memory.take(10..10).expect("empty").lend(None));
    assert!(memory.take(100..100).expect("empty").is_empty());
    assert!(memory.is_lent(10..20));
    drop(lent);
    let outside = DirectMemoryError::Outside { range: 99..101, len: 100 };
    assert_eq!(memory.take(99..101).expect_err("outside"), outside);
    assert_eq!(DirectMemory::allocate(0).expect_err("empty"), DirectMemoryError::Length { len: 0 });
    let len = u32::MAX as usize + 1;
    assert_eq!(DirectMemory::allocate(len).expect_err("too long"), DirectMemoryError::Length { len });
}

#[test]
fn a_slice_is_split_and_put_together_again_without_a_copy() {
    let memory = memory();
    let mut slice = memory.take(10..60).expect("free");
    let start = slice.as_ptr();
    let mut rest = slice.split_off(20);
    assert_eq!((slice.range(), rest.range()), (10..30, 30..60));
    let last = rest.split_off(30);
    assert_eq!(last.range(), 60..60);
    rest.unsplit(last);
    slice.unsplit(rest);
    assert_eq!((slice.range(), slice.as_ptr()), (10..60, start));
    drop(slice.split_off(40));
    assert_eq!(free(&memory), [(0, 10), (50, 50)]);
}
