//! [`CommandName`]: what is kept of a command for the text of an error about its reply.

use std::fmt;

use valkey_rdma_resp::{FromValue, UnexpectedReply, Value};

use super::Command;

/// Longer than any name of Valkey's own commands. Kept where the caller's future is: a query allocates no more for it.
const KEPT: usize = 23;

/// The name of a command that was sent, or the beginning of a long one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandName {
    bytes: [u8; KEPT],
    /// Of the whole name, as far as it matters here.
    len: u8,
}

impl Command {
    /// A copy of the name that outlives the command.
    pub(crate) fn kept_name(&self) -> CommandName {
        CommandName::new(self.words().next().unwrap_or_default())
    }
}

impl CommandName {
    pub(crate) fn new(name: &[u8]) -> Self {
        let mut bytes = [0; KEPT];
        let kept = name.len().min(KEPT);
        bytes[..kept].copy_from_slice(&name[..kept]);
        Self { bytes, len: name.len().min(KEPT + 1) as u8 }
    }

    /// Converts the reply of the command. An error names the command.
    pub(crate) fn convert<T: FromValue>(self, reply: Value) -> Result<T, UnexpectedReply> {
        reply.convert().map_err(|error: UnexpectedReply| error.in_reply_to(self.to_string()))
    }
}

impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = usize::from(self.len);
        f.write_str(&String::from_utf8_lossy(&self.bytes[..len.min(KEPT)]))?;
        f.write_str(if len > KEPT { "..." } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_whole_or_marked_as_cut() {
        for (name, shown) in [
            ("GET", "GET"),
            ("georadiusbymember_ro", "georadiusbymember_ro"),
            ("abcdefghijklmnopqrstuvw", "abcdefghijklmnopqrstuvw"),
            ("abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvw..."),
        ] {
            assert_eq!(Command::new(name).arg("secret").kept_name().to_string(), shown);
        }
        assert_eq!(Command::new("x".repeat(70_000)).kept_name().to_string(), "x".repeat(KEPT) + "...");
    }

    #[test]
    fn a_reply_that_does_not_convert_names_its_command() {
        let name = crate::cmd!["LRANGE", "secret", 0, -1].kept_name();
        let reply = Value::Array(vec![Value::Int(1), Value::Bulk("x".into())]);
        let error = name.convert::<Vec<i64>>(reply).expect_err("a string");
        assert_eq!(error.command(), Some("LRANGE"));
        let text = "LRANGE: member 1 of the reply: expected an integer of 64 bits, got a string of 1 bytes";
        assert_eq!(error.to_string(), text);
    }
}
