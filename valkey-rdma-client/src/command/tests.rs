use super::*;

fn wire(command: Command) -> Vec<u8> {
    let (arguments, parts, tail) = command.encoded();
    let mut bytes = Vec::new();
    put_header(&mut bytes, b'*', arguments);
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(tail);
    bytes
}

#[test]
fn arguments_of_any_bytes_are_length_prefixed() {
    let command = Command::from_args([&b"SET"[..], b"", b"\0\r\n$5\r\n"]);
    assert_eq!(wire(command), b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$7\r\n\0\r\n$5\r\n\r\n");
}

#[test]
fn large_shared_arguments_keep_their_place_and_are_not_copied() {
    let big = Bytes::from(vec![b'x'; SHARED_FROM]);
    let command = Command::new("SET").arg("k").arg(big.clone()).arg("NX");
    assert!(command.parts.iter().any(|part| part.as_ptr() == big.as_ptr()));

    let mut expected = b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$8192\r\n".to_vec();
    expected.extend_from_slice(&big);
    expected.extend_from_slice(b"\r\n$2\r\nNX\r\n");
    assert_eq!(wire(command), expected);
}

#[test]
fn small_shared_arguments_are_copied() {
    let command = Command::new("GET").arg(Bytes::from_static(b"k"));
    assert_eq!(wire(command), b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
}

#[test]
fn headers_hold_any_length() {
    let mut buffer = Vec::new();
    put_header(&mut buffer, b'$', usize::MAX);
    for number in [0, 9, 10, 99, 100] {
        put_header(&mut buffer, b'*', number);
    }
    assert_eq!(&buffer[..], b"$18446744073709551615\r\n*0\r\n*9\r\n*10\r\n*99\r\n*100\r\n");
}

#[test]
fn debug_output_holds_no_arguments() {
    let login = Command::from_args(["AUTH", "me", "hush"]);
    assert_eq!(format!("{login:?}"), "Command { name: \"AUTH\", arguments: 2 }");
    let shared = Command::new("HELLO").arg(Bytes::from("hush".repeat(SHARED_FROM)));
    assert_eq!(format!("{shared:?}"), "Command { name: \"HELLO\", arguments: 1 }");
    assert_eq!(format!("{:?}", Command::empty()), "Command { name: \"an empty command\", arguments: 0 }");
}

#[test]
fn commands_that_break_sharing_are_recognised_in_any_case() {
    for args in [
        &["subscribe", "a"][..],
        &["Monitor"],
        &["QUIT"],
        &["client", "reply", "off"],
        &["HELLO", "3"],
        &["REPLCONF", "ACK", "1"],
        &["cluster", "syncslots", "establish"],
        &["script", "debug", "sync"],
        &["asking"],
        &["ReadOnly"],
        &["READWRITE"],
        &["CLIENT", "SETNAME", "x"],
        &["CLIENT", "no-touch", "on"],
        &["CLIENT", "NO-EVICT", "on"],
    ] {
        let refusal = Command::from_args(args).refusal().expect("refused");
        let words = if matches!(args[0], "client" | "CLIENT" | "script" | "cluster") { 2 } else { 1 };
        assert_eq!(refusal.command, args[..words].join(" "));
    }
    assert_eq!(Command::empty().refusal().expect("refused").command, "an empty command");
    for (line, instead) in [
        ("MONITOR", "`valkey-cli monitor`"),
        ("CLIENT REPLY OFF", "Client::pipeline"),
        ("PSYNC ? -1", "Dialer"),
    ] {
        let refusal = Command::from_args(line.split(' ')).refusal().expect("refused");
        assert!(refusal.reason.contains(instead), "{refusal}");
    }
    for args in [
        &["GET", "a"][..],
        &["CLIENT", "ID"],
        &["CLUSTER", "SLOTS"],
        &["HELLO"],
        &["SUBSCRIBERS"],
        &["", "x"],
        &["GET", "MONITOR"],
        &["SCRIPT", "LOAD", "DEBUG"],
    ] {
        assert_eq!(Command::from_args(args).refusal(), None, "{args:?}");
    }
}

#[test]
fn commands_that_block_are_recognised_and_those_that_only_may_are_not() {
    let kind = |line: &str| Command::from_args(line.split(' ')).class();
    for blocks in [
        "blpop l 0",
        "BLMPOP 0 1 l LEFT",
        "BZPOPMIN z 0",
        "XREAD BLOCK 0 STREAMS s $",
        "xread count 1 block 0 streams s $",
        "XREADGROUP GROUP g c COUNT 1 BLOCK 5 STREAMS s >",
        "XREADGROUP BLOCK 3000 GROUP g c STREAMS s >",
        "xreadgroup noack block 3000 group g c streams s >",
        "XREADGROUP COUNT 1 GROUP STREAMS BLOCK BLOCK 5 STREAMS s >",
    ] {
        assert_eq!(kind(blocks), CommandClass::Blocks, "{blocks}");
        let refusal = Command::from_args(blocks.split(' ')).shared_refusal().expect("refused");
        assert!(refusal.reason.contains("Client::blocking_command"), "{refusal}");
        assert_eq!(Command::from_args(blocks.split(' ')).refusal_outside_pipeline(), None);
    }
    // It needs the connection that wrote.
    for waits in ["WAIT 1 0", "waitaof 0 1 0"] {
        assert_eq!(kind(waits), CommandClass::Waits, "{waits}");
        let refusal = Command::from_args(waits.split(' ')).refusal_outside_pipeline().expect("refused");
        assert!(refusal.reason.contains("Client::dedicated"), "{refusal}");
    }
    for ordinary in [
        "LPOP l",
        "XREAD STREAMS block $",
        "XREAD COUNT 1 STREAMS group block 0 0",
        "XREADGROUP GROUP block BLOCK STREAMS block >",
        "XREADGROUP COUNT 1 GROUP BLOCK c STREAMS s >",
        "XREADGROUP COUNT 1 NOACK GROUP g block STREAMS block >",
        "XREADGROUP GROUP group block STREAMS block >",
        "XREAD",
    ] {
        assert_eq!(Command::from_args(ordinary.split(' ')).shared_refusal(), None, "{ordinary}");
    }
}

#[test]
fn commands_that_end_or_watch_others_overtake_them() {
    let of = |line: &str| Command::from_args(line.split(' '));
    for kills in ["SCRIPT KILL", "script kill", "FUNCTION KILL", "Function Kill"] {
        assert!(of(kills).overtakes() && of(kills).refusal().is_none(), "{kills}");
        let refusal = of(kills).refusal_among_others().expect("refused");
        assert_eq!(refusal.command, kills);
        assert!(refusal.reason.contains("Client::command"), "{refusal}");
    }
    for overtakes in
        ["SHUTDOWN NOSAVE", "shutdown abort", "FUNCTION STATS", "CLIENT UNPAUSE", "client unpause"]
    {
        assert!(of(overtakes).overtakes() && of(overtakes).refusal_among_others().is_none(), "{overtakes}");
    }
    for ordinary in [
        "SCRIPT LOAD KILL",
        "SCRIPT",
        "FUNCTION",
        "FUNCTION LOAD KILL",
        "FUNCTION DEBUG",
        // It spares the connection that sends it, which are the commands of other tasks.
        "CLIENT KILL TYPE normal",
        // What it ends has a connection of its own.
        "CLIENT UNBLOCK 7",
        "CLIENT PAUSE 10",
        "SCRIPTS KILL",
        "FCALL KILL 0",
    ] {
        assert!(!of(ordinary).overtakes() && of(ordinary).shared_refusal().is_none(), "{ordinary}");
    }
}

#[cfg(feature = "redis")]
#[test]
fn what_another_library_has_encoded_is_recognised_too() {
    let packed = |line: &str| Command::from_packed(wire(Command::from_args(line.split(' '))));
    assert_eq!(packed("XREADGROUP GROUP g c BLOCK 5 STREAMS s >").class(), CommandClass::Blocks);
    assert_eq!(packed("XREADGROUP BLOCK 5 GROUP g c STREAMS s >").class(), CommandClass::Blocks);
    assert_eq!(packed("XREADGROUP GROUP g c STREAMS block >").class(), CommandClass::Ordinary);
    for ends in ["EXEC", "EXEC extra", "DISCARD extra"] {
        assert_eq!(packed(ends).class(), CommandClass::EndMulti);
    }
    assert_eq!(packed("SCRIPT KILL").class(), CommandClass::Kills);
    assert_eq!(packed("CLIENT UNPAUSE").class(), CommandClass::Overtakes);
    assert_eq!(wire(packed("SET k v")), wire(Command::from_args(["SET", "k", "v"])));
}
