//! Patterns as in `KEYS user:*`.

/// Whether `text` matches: `*` any bytes, `?` one, `[a-c]` and `[^a]` one of a set, `\` takes the next literally.
/// Letters match in any case, as in `CONFIG GET`.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Names of settings are short.
    matches_exactly(&pattern.to_ascii_lowercase(), &text.to_ascii_lowercase())
}

/// As [`matches()`], but letters match in their own case only, as in `KEYS`.
///
/// A `*` that fails is widened from the last one only, so no pattern takes more than their product of steps.
pub(super) fn matches_exactly(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // Where to go on if the rest does not match: behind the last `*`, and one byte further in the text.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            retry = Some((rest, text));
            pattern = rest;
            continue;
        }
        match (text, pattern) {
            ([], []) => return true,
            ([byte, text_rest @ ..], [_, ..]) => {
                if let Some(pattern_rest) = match_one(pattern, *byte) {
                    (pattern, text) = (pattern_rest, text_rest);
                    continue;
                }
            }
            _ => {}
        }
        match retry {
            Some((after_star, [_, further @ ..])) => {
                retry = Some((after_star, further));
                (pattern, text) = (after_star, further);
            }
            _ => return false,
        }
    }
}

/// Matches one byte with the front of a pattern and returns the rest of the pattern.
fn match_one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => match_set(rest, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

/// A set without its `[`. One that is not closed ends with the pattern.
fn match_set(set: &[u8], byte: u8) -> Option<&[u8]> {
    let (negated, mut set) = match set {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    loop {
        match set {
            [b']', rest @ ..] => return (found != negated).then_some(rest),
            [] => return (found != negated).then_some(set),
            [b'\\', literal, rest @ ..] => {
                found |= *literal == byte;
                set = rest;
            }
            [from, b'-', to, rest @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                set = rest;
            }
            [literal, rest @ ..] => {
                found |= *literal == byte;
                set = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_they_say() {
        for (pattern, text, expected) in [
            ("save", "save", true),
            ("SAVE", "save", true),
            ("save", "saves", false),
            ("*", "", true),
            ("*", "anything", true),
            ("s*e", "save", true),
            ("s*e", "saved", false),
            ("*a*a*", "banana", true),
            ("s?ve", "save", true),
            ("s?ve", "sve", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[b\\]]x", "]x", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("[ab", "b", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn keys_match_in_their_own_case() {
        assert!(matches_exactly(b"[a-c]X*", b"bXy"));
        assert!(!matches_exactly(b"[a-c]X*", b"BXy"));
        assert!(!matches_exactly(b"x*", b"X"));
    }

    #[test]
    fn a_pattern_of_stars_is_not_exponential() {
        let pattern = b"*a".repeat(1000);
        assert!(!matches(&pattern, &vec![b'b'; 10_000]));
    }
}
