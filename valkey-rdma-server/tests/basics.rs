//! The commands that the library answers for a handler.

mod support;

use support::{Wire, localhost, start, wires};
use valkey_rdma_server::{Command, Handler, Limits, Peer, Reply, Server, answer_basic};

/// Answers every command with its name.
struct Parrot;

impl Handler for Parrot {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, _peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        Ok(Reply::from(command.name()))
    }
}

#[tokio::test]
async fn connection_commands_are_answered_for_the_handler() {
    let server = start(Parrot, &Limits::default()).await;
    for wire in &mut wires(&server).await {
        wire.dialogue(&[
            ("PING", "+PONG\r\n"),
            ("ping hi", "$2\r\nhi\r\n"),
            ("PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"),
            ("ECHO hi", "$2\r\nhi\r\n"),
            ("CLIENT GETNAME", "$-1\r\n"),
            ("CLIENT SETNAME me", "+OK\r\n"),
            ("CLIENT GETNAME", "$2\r\nme\r\n"),
            (
                "CLIENT SETNAME 'm e'",
                "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
            ),
            ("CLIENT SETINFO LIB-NAME x", "+OK\r\n"),
            ("CLIENT KILL me", "$6\r\nCLIENT\r\n"),
            ("SELECT 0", "+OK\r\n"),
            ("SELECT 1", "-ERR DB index is out of range\r\n"),
            ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
            ("COMMAND", "*0\r\n"),
            ("COMMAND COUNT", ":0\r\n"),
            ("COMMAND DOCS", "*0\r\n"),
            ("HELLO 9", "-NOPROTO unsupported protocol version\r\n"),
            ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
            ("HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'\r\n"),
            ("AUTH default any", "+OK\r\n"),
            ("GET k", "$3\r\nGET\r\n"),
        ])
        .await;
        wire.send("AUTH any\r\n").await;
        assert!(wire.line().await.starts_with("-ERR AUTH <password> called without any password"));
        wire.send("HELLO 3 SETNAME you AUTH default any\r\n").await;
        wire.expect("%7\r\n$6\r\nserver\r\n$18\r\nvalkey-rdma-server\r\n$7\r\nversion\r\n").await;
        let rest = async |wire: &mut Wire| {
            while wire.line().await != "$7" || wire.line().await != "modules" {}
            wire.expect("*0\r\n").await;
        };
        rest(wire).await;
        wire.dialogue(&[
            ("CLIENT GETNAME", "$3\r\nyou\r\n"),
            ("COMMAND DOCS", "%0\r\n"),
            ("RESET", "+RESET\r\n"),
            ("CLIENT GETNAME", "$-1\r\n"),
            ("QUIT", "+OK\r\n"),
        ])
        .await;
        wire.expect_end().await;
    }
}

/// Counts the commands of each connection since its `RESET`.
struct Counting;

impl Handler for Counting {
    type Session = i64;

    fn session(&self, _peer: &Peer) -> i64 {
        0
    }

    async fn call(&self, _peer: &mut Peer, seen: &mut i64, _command: Command) -> Result<Reply, Reply> {
        *seen += 1;
        Ok(Reply::from(*seen))
    }

    fn reset(&self, _peer: &mut Peer, seen: &mut i64) {
        *seen = 0;
    }
}

#[tokio::test]
async fn reset_reaches_the_session_of_the_handler() {
    let server = start(std::sync::Arc::new(Counting), &Limits::default()).await;
    for wire in &mut wires(&server).await {
        wire.dialogue(&[
            ("GET k", ":1\r\n"),
            ("RESET now", "-ERR wrong number of arguments for 'reset' command\r\n"),
            ("GET k", ":2\r\n"),
            ("reset", "+RESET\r\n"),
            ("GET k", ":1\r\n"),
        ])
        .await;
    }
}

/// Answers `PING` itself, and leaves the other basics to the library, or answers none at all.
struct Own {
    all: bool,
}

impl Handler for Own {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, _peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        Ok(Reply::from(command.name()))
    }

    fn basics(&self, peer: &mut Peer, _session: &mut (), command: &Command) -> Option<Reply> {
        if self.all || command.is("PING") { None } else { answer_basic(peer, command) }
    }
}

#[tokio::test]
async fn a_handler_overrides_the_basics_or_turns_them_off() {
    for (all, echo) in [(false, "$2\r\nhi\r\n"), (true, "$4\r\nECHO\r\n")] {
        let server = start(Own { all }, &Limits::default()).await;
        for wire in &mut wires(&server).await {
            wire.dialogue(&[("PING", "$4\r\nPING\r\n"), ("ECHO hi", echo)]).await;
        }
    }
}

#[tokio::test]
async fn a_password_is_required_before_any_other_command() {
    for own in [Own { all: false }, Own { all: true }] {
        let with_basics = !own.all;
        let server = Server::builder(own).tcp(localhost()).password("secret").start().await.unwrap();
        let mut wire = Wire::connect(&server.listening()[0]).await;
        let noauth = "-NOAUTH Authentication required.\r\n";
        wire.dialogue(&[("PING", noauth), ("GET k", noauth)]).await;
        if !with_basics {
            // No command checks the password, so every client is kept out.
            wire.dialogue(&[("AUTH secret", noauth)]).await;
            continue;
        }
        let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
        wire.dialogue(&[
            ("AUTH wrong!", wrong),
            ("AUTH joe secret", wrong),
            ("HELLO 3 AUTH default wrong", wrong),
            ("HELLO 9 AUTH default secret", "-NOPROTO unsupported protocol version\r\n"),
            ("GET k", noauth),
            ("AUTH secret", "+OK\r\n"),
            ("GET k", "$3\r\nGET\r\n"),
            ("RESET", "+RESET\r\n"),
            ("GET k", noauth),
        ])
        .await;
        wire.send("HELLO 3\r\n").await;
        assert!(wire.line().await.starts_with("-NOAUTH HELLO must be called"));
        wire.send("HELLO 3 SETNAME me AUTH default secret\r\n").await;
        wire.expect("%7\r\n").await;

        let mut quitting = Wire::connect(&server.listening()[0]).await;
        quitting.dialogue(&[("QUIT", "+OK\r\n")]).await;
        quitting.expect_end().await;

        let mut stranger = Wire::connect(&server.listening()[0]).await;
        stranger.send("*11\r\n").await;
        stranger.expect("-ERR Protocol error: unauthenticated multibulk length\r\n").await;
        stranger.expect_end().await;
    }
}
