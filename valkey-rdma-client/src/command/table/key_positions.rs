//! The keys of a command, found by its [`KeyRule`], in its encoded form, without copying anything.

use super::description::{Begin, Find, KeyRule, KeySpec};
use crate::command::Command;

/// Calls `each` with the position and the bytes of every key, until it returns `false`. Positions count from the command's
/// name, number 0. A group of keys that does not fit the arguments counts as empty: the server reports what is wrong.
pub(crate) fn for_each_key<'a>(
    command: &'a Command,
    rule: KeyRule<'_>,
    each: &mut impl FnMut(usize, &'a [u8]) -> bool,
) {
    match rule {
        KeyRule::First => {
            if let Some(key) = command.words().nth(1) {
                each(1, key);
            }
        }
        KeyRule::Specs(specs) => {
            for spec in specs {
                if !group(command, spec, each) {
                    return;
                }
            }
        }
        KeyRule::Sort => stored(command, 2, &[(b"LIMIT", 2), (b"GET", 1), (b"BY", 1)], &[b"STORE"], each),
        KeyRule::Radius => stored(command, 5, &[], &[b"STORE", b"STOREDIST"], each),
        KeyRule::Migrate => migrate(command, each),
    }
}

/// Returns `false` once `each` does.
fn group<'a>(command: &'a Command, spec: &KeySpec, each: &mut impl FnMut(usize, &'a [u8]) -> bool) -> bool {
    let count = command.arguments();
    let begin = match &spec.begin {
        Begin::Index(at) => *at,
        Begin::Keyword(keyword, from) => {
            let mut words = command.words().enumerate().skip(*from);
            // The last argument is not searched: no key follows it.
            match words.find(|(at, word)| at + 1 < count && is(word, keyword.as_bytes())) {
                Some((at, _)) => at + 1,
                None => return true,
            }
        }
    };
    let (first, last, step) = match spec.find {
        Find::Range { last: 0, .. } => (begin, Some(begin), 1),
        Find::Range { last, step, .. } if last > 0 => (begin, begin.checked_add_signed(last), step),
        Find::Range { last, step, limit: 0 | 1 } => (begin, count.checked_add_signed(last), step),
        Find::Range { last, step, limit } => {
            let share = count.saturating_sub(begin) / limit;
            (begin, (begin + share).checked_add_signed(last), step)
        }
        Find::Counted { count: at, first, step } => {
            let number = command.words().nth(begin + at).and_then(parse);
            let last =
                number.and_then(|keys| keys.checked_sub(1)?.checked_mul(step)?.checked_add(begin + first));
            (begin + first, last, step)
        }
    };
    let Some(last) = last.filter(|last| (first..count).contains(last)) else { return true };
    for (at, word) in command.words().enumerate().skip(first).take(last - first + 1).step_by(step.max(1)) {
        if !each(at, word) {
            return false;
        }
    }
    true
}

/// The first argument, and the one behind the last of `keywords`. Options in `skipped` have that many arguments.
fn stored<'a>(
    command: &'a Command,
    from: usize,
    skipped: &[(&[u8], usize)],
    keywords: &[&[u8]],
    each: &mut impl FnMut(usize, &'a [u8]) -> bool,
) {
    let Some(source) = command.words().nth(1) else { return };
    if !each(1, source) {
        return;
    }
    let mut words = command.words().enumerate().skip(from);
    let mut target = None;
    while let Some((_, word)) = words.next() {
        if let Some((_, arguments)) = skipped.iter().find(|(option, _)| is(word, option)) {
            let _last_of_them = arguments.checked_sub(1).and_then(|more| words.nth(more));
        } else if keywords.iter().any(|keyword| is(word, keyword)) {
            target = words.next().or(target);
        }
    }
    if let Some((at, word)) = target {
        each(at, word);
    }
}

/// The third argument; if it is empty, everything behind KEYS.
fn migrate<'a>(command: &'a Command, each: &mut impl FnMut(usize, &'a [u8]) -> bool) {
    let mut words = command.words().enumerate().skip(3);
    let Some((at, key)) = words.next() else { return };
    let mut words = words.skip(2);
    let mut many = false;
    while let Some((_, word)) = words.next() {
        if is(word, b"KEYS") {
            many = true;
            break;
        }
        let arguments = if is(word, b"AUTH") { 1 } else { 2 * usize::from(is(word, b"AUTH2")) };
        let _last_of_them = arguments.checked_sub(1).and_then(|more| words.nth(more));
    }
    match (many, key.is_empty()) {
        (false, _) => drop(each(at, key)),
        (true, true) => drop(words.all(|(at, key)| each(at, key))),
        // One key and KEYS: the server reports it.
        (true, false) => {}
    }
}

fn is(word: &[u8], other: &[u8]) -> bool {
    word.eq_ignore_ascii_case(other)
}

fn parse(word: &[u8]) -> Option<usize> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use crate::command::Command;
    use crate::command::table::find;

    /// The words at the positions that are keys.
    fn keys(line: &str) -> Vec<String> {
        let command =
            Command::from_args(line.split_whitespace().map(|word| if word == "''" { "" } else { word }));
        let description = find(&command).expect("a known command");
        let mut found = Vec::new();
        super::for_each_key(&command, description.keys, &mut |at, key| {
            assert_eq!(command.words().nth(at), Some(key));
            found.push(String::from_utf8_lossy(key).into_owned());
            true
        });
        found
    }

    #[test]
    fn keys_are_found_where_the_descriptions_say() {
        for (line, expected) in [
            ("get a", "a"),
            ("SET a 1 EX 5", "a"),
            ("DEL a b c", "a b c"),
            ("MSET a 1 b 2", "a b"),
            ("BLPOP a b 0", "a b"),
            ("OBJECT ENCODING a", "a"),
            ("object help", ""),
            ("XGROUP CREATE a g $", "a"),
            ("EVAL return 2 a b c", "a b"),
            ("EVAL return 0 c", ""),
            ("EVAL return 3 a b", ""),
            ("EVAL return x a b", ""),
            ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", "d a b"),
            ("BITOP AND d a b", "d a b"),
            ("XREAD COUNT 2 STREAMS a b 0 0", "a b"),
            ("XREADGROUP GROUP g c STREAMS a >", "a"),
            ("MSETEX 2 a 1 b 2 EX 5", "a b"),
            ("SORT a BY w_* GET STORE LIMIT 0 1 STORE d", "a d"),
            ("SORT a STORE", "a"),
            ("GEORADIUS a 1 1 1 m STORE x STOREDIST d", "a d"),
            ("MIGRATE h 1 a 0 10 COPY", "a"),
            ("MIGRATE h 1 '' 0 10 AUTH KEYS KEYS a b", "a b"),
            ("MIGRATE h 1 a 0 10 KEYS b", ""),
            ("GET", ""),
            ("PING", ""),
            ("SPUBLISH channel x", "channel"),
            ("CLUSTERSCAN 0-{06S}-0", "0-{06S}-0"),
        ] {
            assert_eq!(keys(line).join(" "), expected, "{line}");
        }
    }
}
