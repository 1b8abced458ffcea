//! [`repeatable`]: which commands of a lost connection are sent again.

use valkey_rdma_client::Command;
use valkey_rdma_resp::words;

use crate::words::commands;

/// How many of the last `unanswered` commands only read, up to the last one, and how many bytes these have. An earlier read could be sent
/// again too, but the error for the command behind it would have to wait for its reply.
pub(super) fn repeatable(bytes: &[u8], unanswered: u32) -> (u32, usize) {
    let commands: Vec<_> = commands(bytes).collect();
    let reads = |command: &&&[u8]| Command::from_args(words(command)).may_run_twice();
    let last = commands.iter().rev().take(unanswered as usize).take_while(reads);
    last.fold((0, 0), |(count, len), command| (count + 1, len + command.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::encode;

    #[test]
    fn the_last_unanswered_commands_that_only_read_are_repeatable() {
        for (lines, unanswered, count) in [
            (&["GET a"][..], 1, 1),
            (&["INCR a", "GET a", "mget a b"], 3, 2),
            (&["GET a", "MGET a b"], 1, 1),
            (&["GET a", "INCR a"], 2, 0),
            (&["SET a GET", "MYMODULE.GET a"], 2, 0),
        ] {
            let commands: Vec<_> = lines.iter().map(|line| encode(line.split(' '))).collect();
            let len: usize = commands.iter().rev().take(count as usize).map(Vec::len).sum();
            assert_eq!(repeatable(&commands.concat(), unanswered), (count, len), "{lines:?}");
        }
    }
}
