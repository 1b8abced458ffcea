//! [`repeatable`]: which commands of a lost connection are sent again.

use valkey_rdma_client::Command;
use valkey_rdma_resp::words;

use crate::command::words::commands;

/// How many bytes the last `unanswered` commands have. `None` if one of them does more than read, or is not RESP.
pub(super) fn repeatable(bytes: &[u8], unanswered: u32) -> Option<usize> {
    let commands: Vec<_> = commands(bytes).collect();
    let before = commands.len().checked_sub(unanswered as usize)?;
    let last = commands[before..].iter();
    last.map(|command| Command::from_args(words(command)).may_run_twice().then_some(command.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::words::encode;

    #[test]
    fn the_last_unanswered_commands_are_repeatable_if_they_only_read() {
        for (lines, unanswered, is_repeatable) in [
            (&["GET a"][..], 1, true),
            (&["INCR a", "GET a", "mget a b"], 3, false),
            (&["INCR a", "GET a", "mget a b"], 2, true),
            (&["GET a", "MGET a b"], 1, true),
            (&["GET a", "INCR a"], 2, false),
            (&["SET a GET", "MYMODULE.GET a"], 1, false),
            (&["GET a"], 2, false),
        ] {
            let commands: Vec<_> = lines.iter().map(|line| encode(line.split(' '))).collect();
            let len = commands.iter().rev().take(unanswered as usize).map(Vec::len).sum();
            let expected = is_repeatable.then_some(len);
            assert_eq!(repeatable(&commands.concat(), unanswered), expected, "{lines:?}");
        }
    }
}
