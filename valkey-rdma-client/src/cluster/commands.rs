//! What Valkey says of its commands, in a table generated from its own descriptions.

mod description;
mod key_positions;
mod learn;
#[cfg(test)]
mod real_server;
mod table;

pub(super) use self::description::{Access, Description, Request, Response};
pub(super) use self::key_positions::for_each_key;
pub(super) use self::learn::Learned;
use self::table::COMMANDS;
use crate::resp::Command;

/// The description of a command, or of its subcommand; `None` if Valkey has no such command.
pub(super) fn find(command: &Command) -> Option<&'static Description<'static>> {
    let mut words = command.words();
    let description = find_name(words.next()?)?;
    Some(with_subcommand(description, || words.next()))
}

/// The subcommand's description if it has one, else that of its container.
fn with_subcommand<'a, 'w>(
    container: &'a Description<'a>,
    name: impl FnOnce() -> Option<&'w [u8]>,
) -> &'a Description<'a> {
    if container.subcommands.is_empty() {
        return container;
    }
    let Some(name) = name() else { return container };
    let mut subcommands = container.subcommands.iter();
    subcommands.find(|known| known.name.as_bytes().eq_ignore_ascii_case(name)).unwrap_or(container)
}

/// The first key of a command that Valkey has.
pub(super) fn first_key(command: &Command) -> Option<&[u8]> {
    let mut first = None;
    for_each_key(command, find(command)?.keys, &mut |_, key| {
        first = Some(key);
        false
    });
    first
}

fn find_name(name: &[u8]) -> Option<&'static Description<'static>> {
    let mut at = hash(name) % INDEX_LEN;
    loop {
        let description = &COMMANDS[usize::from(INDEX[at]).checked_sub(1)?];
        if description.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(description);
        }
        at = (at + 1) % INDEX_LEN;
    }
}

/// FNV-1a over the name, whatever its letter case.
const fn hash(name: &[u8]) -> usize {
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ (name[at] & !0x20) as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ (hash >> 15)) as usize
}

/// Four times as many as commands, so that most are found at the first place.
const INDEX_LEN: usize = 1024;

/// Positions in the table plus 1, by hash, with the next free place after a collision; 0 ends a search.
static INDEX: [u16; INDEX_LEN] = NAMES_HASHED;

const NAMES_HASHED: [u16; INDEX_LEN] = {
    let mut index = [0; INDEX_LEN];
    let mut command = 0;
    while command < table::NAMES.len() {
        let mut at = hash(table::NAMES[command].as_bytes()) % INDEX_LEN;
        while index[at] != 0 {
            at = (at + 1) % INDEX_LEN;
        }
        command += 1;
        index[at] = command as u16;
    }
    index
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_letter_case() {
        for (at, known) in COMMANDS.iter().enumerate() {
            assert_eq!(table::NAMES[at], known.name);
            let found = find_name(known.name.to_ascii_lowercase().as_bytes()).expect("found");
            assert!(std::ptr::eq(found, known), "{}", known.name);
            assert!(std::ptr::eq(find_name(known.name.as_bytes()).expect("found"), known));
        }
        for unknown in ["", "G", "GETT", "JSON.GET", "\u{ff}"] {
            assert!(find_name(unknown.as_bytes()).is_none(), "{unknown}");
        }
    }

    #[test]
    fn most_commands_are_at_the_first_place_looked_at() {
        let first = |known: &&Description| {
            let entry = usize::from(INDEX[hash(known.name.as_bytes()) % INDEX_LEN]);
            COMMANDS[entry - 1].name == known.name
        };
        assert!(COMMANDS.iter().filter(first).count() * 10 > COMMANDS.len() * 8);
    }

    #[test]
    fn subcommands_have_their_own_description() {
        let find = |line: &str| find(&Command::from_args(line.split(' '))).expect("known");
        assert_eq!(find("config set a b").request, Request::AllNodes);
        assert_eq!(find("CONFIG GET a").request, Request::Default);
        assert_eq!(find("CONFIG NONSENSE").name, "CONFIG");
        assert_eq!(find("OBJECT FREQ k").access, Access::Read);
        assert_eq!(find("DBSIZE").response, Response::Sum);
    }
}
