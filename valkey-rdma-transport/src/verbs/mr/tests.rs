use super::*;

#[test]
fn pages_are_zeroed_writable_and_as_long_as_asked() {
    for len in [0, 1, 4096, 100_001, 2 << 20] {
        let pages = Pages::map(len).expect("memory");
        let start = pages.usable;
        assert_eq!(start.as_ptr() as usize % sys::page_size(), 0);
        for offset in 0..len {
            // SAFETY: inside of the pages, which this test has alone.
            unsafe {
                assert_eq!(start.add(offset).read(), 0);
                start.add(offset).write(0xff);
            }
        }
    }
}

/// The mappings of this process that overlap `range`: each with its access, such as `rw-p`.
fn mappings(range: Range<usize>) -> Vec<(Range<usize>, String)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the list of mappings");
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some((address(start)?..address(end)?, words.next()?.to_owned()))
    };
    let mappings = maps.lines().map(|line| parse(line).expect("a mapping"));
    mappings.filter(|(other, _)| other.start < range.end && range.start < other.end).collect()
}

#[test]
fn a_page_that_nobody_can_touch_lies_on_either_side() {
    let page = sys::page_size();
    for len in [1, 100_001, 2 << 20] {
        let pages = Pages::map(len).expect("memory");
        let start = pages.usable.as_ptr() as usize;
        let end = mappings(start..start + 1)[0].0.end;
        assert!(end - start >= len);
        for (range, access) in
            [(start - page..start, "---p"), (start..start + len, "rw-p"), (end..end + page, "---p")]
        {
            let found = mappings(range.clone());
            let covered = found.iter().map(|(each, _)| each.end.min(range.end) - each.start.max(range.start));
            assert_eq!(covered.sum::<usize>(), range.len(), "{found:x?}");
            assert!(found.iter().all(|(_, each)| each == access), "{found:x?} is not {access}");
        }
    }
}

#[test]
fn more_than_there_is_room_for_is_refused() {
    assert!(Pages::map(usize::MAX).is_err());
    assert!(Pages::map(usize::MAX / 2).is_err());
}
