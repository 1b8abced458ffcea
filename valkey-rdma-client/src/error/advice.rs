//! What to do about an error reply: to a command ([`advice`]), or to the login ([`advice_on_login`]).

use valkey_rdma_resp::{ServerError, ServerErrorKind};

/// What to do about an error reply, where the server does not know it.
pub(super) fn advice(error: &ServerError) -> &'static str {
    match error.kind() {
        ServerErrorKind::Moved | ServerErrorKind::Ask => {
            return "; the server belongs to a cluster: unless the caller has named the node, connect with rdma+cluster:// or valkey+cluster://";
        }
        ServerErrorKind::CrossSlot => {
            return "; the server belongs to a cluster: give keys that are used together the same hash tag, as {user1}:name and \
                    {user1}:mail have";
        }
        _ => {}
    }
    // "unknown command 'CONFIG GET', with args beginning with: ..."
    let name = error.message.strip_prefix("unknown command ").and_then(|text| {
        let quote = text.chars().next()?;
        text[quote.len_utf8()..].split(quote).next()
    });
    match name {
        Some(name) if name.eq_ignore_ascii_case("client setname") => {
            "; to name the connections, use Config::name"
        }
        Some(name) if name.contains(' ') => {
            "; pass its words as separate arguments, as in [\"CONFIG\", \"GET\"]"
        }
        _ => "",
    }
}

/// What to do about a server that refuses login or setup.
pub(super) fn advice_on_login(error: &ServerError) -> &'static str {
    match error.kind() {
        ServerErrorKind::NoAuth => {
            "give the password before the host: user:password@, or :password@ for the default user"
        }
        ServerErrorKind::WrongPass => "check user and password",
        ServerErrorKind::NoProto => "it does not speak RESP3: use protocol=resp2",
        ServerErrorKind::ProtectedMode => {
            "its protected mode admits local clients only: set a password or protected-mode no there"
        }
        ServerErrorKind::MaxClients => "raise maxclients there, or open fewer connections",
        ServerErrorKind::Loading | ServerErrorKind::MasterDown | ServerErrorKind::Busy => {
            "it is not ready yet: try again later"
        }
        _ if error.message.starts_with("unknown command") => "an old server: use protocol=resp2",
        // Envoy's words, without a code in front.
        _ if error.to_string().to_ascii_lowercase().contains("unsupported command") => {
            "a proxy that does not know it: use protocol=resp2"
        }
        // The words of this project's servers.
        _ if error.requires_tls() => "add ca=FILE if its issuer is none of this system's",
        _ if error.message.starts_with("Client names") => "give Config::name a name without blanks",
        _ if error.message.contains("SELECT is not allowed in cluster mode") => {
            "a cluster has one database: leave the number out of the URL"
        }
        _ if error.message.contains("DB index") => "check the database number after the port",
        // The words of Valkey, and of Redis up to 5.
        _ if error.message.contains("without any password configured")
            || error.message.contains("no password is set") =>
        {
            "it has no password: leave yours out"
        }
        _ => "check the server's configuration",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn the_errors_of_a_cluster_say_what_finds_the_node() {
        let text = |reply: &str| Error::from(ServerError::from_reply(reply.as_bytes())).to_string();
        let advice = "the server belongs to a cluster: unless the caller has named the node, connect with rdma+cluster:// or valkey+cluster://";
        assert_eq!(text("MOVED 866 h:1"), format!("MOVED 866 h:1; {advice}"));
        assert_eq!(text("ASK 866 h:1"), format!("ASK 866 h:1; {advice}"));
        assert!(
            text("CROSSSLOT Keys in request")
                .contains("Keys in request; the server belongs to a cluster: give keys")
        );
        assert_eq!(text("ERR syntax error"), "ERR syntax error");
    }

    #[test]
    fn a_password_that_the_server_does_not_have_is_left_out() {
        for reply in [
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            "ERR Client sent AUTH, but no password is set",
        ] {
            let error = ServerError::from_reply(reply.as_bytes());
            assert_eq!(advice_on_login(&error), "it has no password: leave yours out", "{reply}");
        }
    }
}
