//! Lengths of messages, as people write them.

/// A number of bytes, such as `64 KiB`.
pub fn size_text(size: u32) -> String {
    match size {
        size if size >= 1 << 20 && size % (1 << 20) == 0 => format!("{} MiB", size >> 20),
        size if size >= 1 << 10 && size % (1 << 10) == 0 => format!("{} KiB", size >> 10),
        size => format!("{size} B"),
    }
}

/// A text that is not a length of messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a size from 1 to 1G: use bytes, or K, M, G, as in 64K")]
pub struct BadSize(String);

/// A number of bytes from 1 to 1 GiB, such as `64`, `4K`, `1M`.
///
/// # Errors
/// [`BadSize`] for anything else.
pub fn parse_size(text: &str) -> Result<u32, BadSize> {
    let bad = || BadSize(text.to_owned());
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let number: u32 = digits.parse().map_err(|_| bad())?;
    number.checked_mul(unit).filter(|bytes| (1..=1 << 30).contains(bytes)).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("1", 1), ("4K", 4096), ("8m", 8 << 20), ("1G", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for text in ["0", "", "K", "-1", "2G", "4294967297", "1T", "64 K", "ä"] {
            assert_eq!(parse_size(text), Err(BadSize(text.into())));
        }
    }
}
