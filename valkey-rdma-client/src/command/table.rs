//! What Valkey says of its commands, in a table generated from its own descriptions.

mod description;
mod generated;
mod key_positions;
#[cfg(test)]
mod real_server;

pub(crate) use self::description::{
    Access, Begin, Description, Find, KeyRule, KeySpec, Request, Response, Word,
};
use self::generated::COMMANDS;
pub(crate) use self::key_positions::for_each_key;
use super::Command;

/// The description of a command, or of its subcommand; `None` if Valkey has no such command.
pub(crate) fn find(command: &Command) -> Option<&'static Description<'static>> {
    find_words(command.words())
}

/// As [`find`], by the command's words.
fn find_words<'w>(mut words: impl Iterator<Item = &'w [u8]>) -> Option<&'static Description<'static>> {
    let description = find_name(words.next()?)?;
    Some(with_subcommand(description, || words.next()))
}

impl Command {
    /// True if running the command twice does no harm: it only reads, by Valkey's own description, is PING, ECHO or TIME, or it is
    /// declared [idempotent](Self::idempotent). Such a command is sent again if the connection is lost before its reply.
    ///
    /// ```
    /// use valkey_rdma_client::cmd;
    ///
    /// assert!(cmd!["GET", "key"].may_run_twice() && cmd!["PING"].may_run_twice());
    /// assert!(!cmd!["INCR", "key"].may_run_twice());
    /// assert!(cmd!["SET", "key", "value"].idempotent().may_run_twice());
    /// ```
    #[must_use]
    pub fn may_run_twice(&self) -> bool {
        self.is_idempotent() || is_harmless(self.words())
    }
}

/// True if running the command of these words twice does no harm, by Valkey's own description.
pub(super) fn is_harmless<'w>(words: impl Iterator<Item = &'w [u8]>) -> bool {
    find_words(words).is_some_and(|description| match description.access {
        Access::Read => true,
        Access::Write => false,
        Access::Neither => HARMLESS.contains(&description.name),
    })
}

/// Commands that neither read keys nor change anything.
const HARMLESS: [&str; 3] = ["PING", "ECHO", "TIME"];

/// The key of a command that has one, as its first argument: nearly all commands. `None`: see [`find`].
pub(crate) fn only_key(command: &Command) -> Option<(&[u8], Access)> {
    let mut words = command.words();
    let description = find_name(words.next()?)?;
    match description.keys {
        // Containers have keys in their subcommands only.
        KeyRule::First => Some((words.next()?, description.access)),
        _ => None,
    }
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
pub(crate) fn first_key(command: &Command) -> Option<&[u8]> {
    let mut first = None;
    for_each_key(command, find(command)?.keys, &mut |_, key| {
        first = Some(key);
        false
    });
    first
}

fn find_name(name: &[u8]) -> Option<&'static Description<'static>> {
    let head = head(name);
    let mut at = place(head, name.len());
    loop {
        let command = usize::from(INDEX[at]).checked_sub(1)?;
        let description = &COMMANDS[command];
        if HEADS[command] == head && is_same(description.name.as_bytes(), name) {
            return Some(description);
        }
        at = (at + 1) % INDEX_LEN;
    }
}

/// The first letters of a name as a number, whatever their letter case. They are compared and hashed together.
const fn head(name: &[u8]) -> u64 {
    let mut head = 0;
    let mut at = 0;
    while at < name.len() && at < HEAD_LEN {
        head = head << 8 | name[at].to_ascii_uppercase() as u64;
        at += 1;
    }
    head
}

/// True if both names are the same, given that their heads are.
fn is_same(known: &[u8], name: &[u8]) -> bool {
    known.len() == name.len()
        && (name.len() <= HEAD_LEN || known[HEAD_LEN..].eq_ignore_ascii_case(&name[HEAD_LEN..]))
}

/// Where to look first.
const fn place(head: u64, len: usize) -> usize {
    let hash = (head ^ (len as u64) << 59).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 54) as usize % INDEX_LEN
}

/// As many letters as fit a number; most names are no longer.
const HEAD_LEN: usize = 8;

/// Four times as many as commands, so that most are found at the first place.
const INDEX_LEN: usize = 1024;

/// Positions in the table plus 1, by hash, with the next free place after a collision; 0 ends a search.
static INDEX: [u16; INDEX_LEN] = {
    let mut index = [0; INDEX_LEN];
    let mut command = 0;
    while command < generated::NAMES.len() {
        let mut at = place(HEADS[command], generated::NAMES[command].len());
        while index[at] != 0 {
            at = (at + 1) % INDEX_LEN;
        }
        command += 1;
        index[at] = command as u16;
    }
    index
};

/// By position in the table.
static HEADS: [u64; generated::NAMES.len()] = {
    let mut heads = [0; generated::NAMES.len()];
    let mut command = 0;
    while command < heads.len() {
        heads[command] = head(generated::NAMES[command].as_bytes());
        command += 1;
    }
    heads
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_letter_case() {
        for (at, known) in COMMANDS.iter().enumerate() {
            assert_eq!(generated::NAMES[at], known.name);
            let found = find(&Command::new(known.name.to_ascii_lowercase())).expect("found");
            assert!(std::ptr::eq(found, known), "{}", known.name);
            assert!(std::ptr::eq(find(&Command::new(known.name)).expect("found"), known));
        }
        for unknown in ["", "G", "GETT", "\0GET", "GEORADIUSBYMEMBER_RW", "JSON.GET", "\u{ff}"] {
            assert!(find(&Command::new(unknown)).is_none(), "{unknown}");
        }
    }

    #[test]
    fn no_container_has_a_key_of_its_own() {
        let containers = COMMANDS.iter().filter(|known| !known.subcommands.is_empty());
        for container in containers {
            assert!(!matches!(container.keys, KeyRule::First), "{}", container.name);
        }
        let only_key = |line: &str| {
            let command = Command::from_args(line.split(' '));
            only_key(&command).map(|(key, access)| (key.to_vec(), access))
        };
        assert_eq!(only_key("get k"), Some((b"k".to_vec(), Access::Read)));
        assert_eq!(only_key("SET k v"), Some((b"k".to_vec(), Access::Write)));
        assert_eq!(only_key("zrangebyscore k 1 2"), Some((b"k".to_vec(), Access::Read)));
        assert_eq!(only_key("get \r\n"), Some((b"\r\n".to_vec(), Access::Read)));
        for line in ["", "GET", "DEL k", "OBJECT FREQ k", "PING", "NONSENSE k"] {
            assert_eq!(only_key(line), None, "{line}");
        }
    }

    #[test]
    fn most_commands_are_at_the_first_place_looked_at() {
        let first = |known: &&Description| {
            let entry = usize::from(INDEX[place(head(known.name.as_bytes()), known.name.len())]);
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
