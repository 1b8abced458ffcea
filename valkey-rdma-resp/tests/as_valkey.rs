//! What Valkey 9.1 answers to input that is malformed, or nearly: `as_valkey.txt` has its replies, byte for byte. A parser that accepts
//! what the server refuses would let one client end a connection that others share.
//!
//! To record the file again, start two servers, one of them with `--requirepass`, and name their ports:
//! `VALKEY_RDMA_TEST_PORTS=6379,6380 cargo test -p valkey-rdma-resp --test as_valkey -- --ignored`. Read what has changed.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::BufMut;
use valkey_rdma_resp::{CommandScanner, Parser, Room, inline_words, words};

/// Of each case: whether the client has logged in, what it sends, what the server answers, and whether it closes the connection then.
struct Case<'a> {
    trusted: bool,
    input: &'a str,
    replies: &'a str,
    closes: bool,
}

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/as_valkey.txt");

fn cases(text: &str) -> Vec<Case<'_>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    let case = |line| {
        let mut fields = str::splitn(line, 4, " | ");
        let mut field = || fields.next().unwrap_or_default();
        Case { trusted: field() == "user", input: field(), closes: field() == "closes", replies: field() }
    };
    lines.map(case).collect()
}

/// Reads `\r`, `\n`, `\t`, `\xHH`, `\\` and `[C*N]`, which is N times the character C.
fn unescape(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [byte, tail @ ..] = rest {
        let (piece, tail) = match (byte, tail) {
            (b'\\', [b'r', tail @ ..]) => (vec![b'\r'], tail),
            (b'\\', [b'n', tail @ ..]) => (vec![b'\n'], tail),
            (b'\\', [b't', tail @ ..]) => (vec![b'\t'], tail),
            (b'\\', [b'x', high, low, tail @ ..]) => {
                let digits = String::from_utf8(vec![*high, *low]).expect("ASCII");
                (vec![u8::from_str_radix(&digits, 16).expect("two digits")], tail)
            }
            (b'\\', [byte, tail @ ..]) => (vec![*byte], tail),
            (b'[', [byte, b'*', tail @ ..]) => {
                let end = tail.iter().position(|byte| *byte == b']').expect("a closed bracket");
                let count = std::str::from_utf8(&tail[..end]).expect("ASCII").parse().expect("a number");
                (vec![*byte; count], &tail[end + 1..])
            }
            (byte, tail) => (vec![*byte], tail),
        };
        bytes.extend_from_slice(&piece);
        rest = tail;
    }
    bytes
}

/// What the server would answer to these words.
fn answer(command: &[Vec<u8>], trusted: bool) -> Vec<u8> {
    if !trusted {
        return b"-NOAUTH Authentication required.\r\n".to_vec();
    }
    match (command[0].to_ascii_lowercase().as_slice(), &command[1..]) {
        (b"ping", []) => b"+PONG\r\n".to_vec(),
        (b"echo", [word]) => [format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat(),
        (b"echo", _) => b"-ERR wrong number of arguments for 'echo' command\r\n".to_vec(),
        (other, _) => panic!("the cases use PING and ECHO only, not {}", other.escape_ascii()),
    }
}

/// Replies as this crate's parser understands the input, and whether it refuses some of it.
fn parsed(input: &[u8], trusted: bool, step: usize) -> (Vec<u8>, bool) {
    let mut parser = Parser::new(512 * 1024 * 1024);
    let mut replies = Vec::new();
    for piece in input.chunks(step) {
        let mut piece = piece;
        while !piece.is_empty() {
            let taken = match parser.room() {
                Room::Buffer(buffer) => {
                    buffer.extend_from_slice(piece);
                    piece.len()
                }
                Room::Argument(mut argument) => {
                    let taken = argument.remaining_mut().min(piece.len());
                    argument.put_slice(&piece[..taken]);
                    taken
                }
            };
            piece = &piece[taken..];
            loop {
                match parser.next_command(trusted) {
                    Ok(Some(command)) => {
                        let mut words = vec![command.name().to_vec()];
                        words.extend(command.args().iter().map(|word| word.to_vec()));
                        replies.extend_from_slice(&answer(&words, trusted));
                    }
                    Ok(None) => break,
                    Err(error) => {
                        replies.extend_from_slice(format!("-ERR {error}\r\n").as_bytes());
                        return (replies, true);
                    }
                }
            }
        }
    }
    (replies, false)
}

/// The same of the scanner, which knows no limits for clients that have not logged in, and none of the length of a word.
fn scanned(input: &[u8], step: usize) -> (Vec<u8>, bool) {
    let mut scanner = CommandScanner::default();
    let (mut arrived, mut begin, mut passed, mut replies) = (0, 0, 0, Vec::new());
    while arrived < input.len() {
        arrived = input.len().min(arrived + step);
        loop {
            let command = match scanner.scan(&input[passed..arrived]) {
                Ok(found) => {
                    passed += found.len;
                    if !found.complete {
                        break;
                    }
                    &input[std::mem::replace(&mut begin, passed)..passed]
                }
                Err(error) => {
                    replies.extend_from_slice(format!("-ERR {error}\r\n").as_bytes());
                    return (replies, true);
                }
            };
            let words = match command.first() {
                Some(b'*') => Ok(words(command).map(<[u8]>::to_vec).collect::<Vec<_>>()),
                _ => inline_words(command).map(|words| words.iter().map(|word| word.to_vec()).collect()),
            };
            match words {
                Ok(words) if words.is_empty() => {}
                Ok(words) => replies.extend_from_slice(&answer(&words, true)),
                Err(error) => {
                    replies.extend_from_slice(format!("-ERR {error}\r\n").as_bytes());
                    return (replies, true);
                }
            }
        }
    }
    (replies, false)
}

/// Inputs that the server would wait for, and that are refused here at once: see `LineScanner::inline`.
fn is_never_answered(input: &[u8]) -> bool {
    input.first().is_some_and(|byte| *byte != b'*') && input.contains(&0)
}

#[test]
fn what_the_server_refuses_is_refused_with_its_text_and_nothing_else_is() {
    let text = include_str!("as_valkey.txt");
    let cases = cases(text);
    assert!(cases.len() > 100, "{}", cases.len());
    for case in cases {
        let input = unescape(case.input);
        let expected = (unescape(case.replies), case.closes);
        for step in [1, 7, 4096, usize::MAX] {
            let found = parsed(&input, case.trusted, step);
            if is_never_answered(&input) {
                assert!(found.1 && !expected.1, "{}", case.input);
                continue;
            }
            let shown = |(replies, closes): &(Vec<u8>, bool)| (replies.escape_ascii().to_string(), *closes);
            assert_eq!(shown(&found), shown(&expected), "{} in pieces of {step}", case.input);
            let is_own_limit = expected.0.ends_with(b"invalid bulk length\r\n") && !input.contains(&b'-');
            if case.trusted && !is_own_limit {
                assert_eq!(shown(&scanned(&input, step)), shown(&expected), "{}", case.input);
            }
        }
    }
}

#[test]
#[ignore = "records the file from real servers: see the top of this file"]
fn record() {
    let ports = std::env::var("VALKEY_RDMA_TEST_PORTS").expect("VALKEY_RDMA_TEST_PORTS is set");
    let (open, closed) = ports.split_once(',').expect("two ports");
    let old = std::fs::read_to_string(FILE).expect("the file");
    let mut new = String::new();
    for line in old.lines() {
        if line.is_empty() || line.starts_with("# ") {
            new += &format!("{line}\n");
            continue;
        }
        let case = &cases(line)[0];
        let (replies, closes) = ask(if case.trusted { open } else { closed }, &unescape(case.input));
        let (who, end) =
            (if case.trusted { "user" } else { "stranger" }, if closes { "closes" } else { "waits" });
        new += &format!("{who} | {} | {end} | {}\n", case.input, shorten(&replies));
    }
    std::fs::write(FILE, new).expect("written");
}

/// Sends all of it, and reads until the server closes the connection or says nothing more.
fn ask(port: &str, input: &[u8]) -> (Vec<u8>, bool) {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("a server");
    stream.set_read_timeout(Some(Duration::from_millis(400))).expect("a timeout");
    // A server that has refused the first part may have closed already.
    let _ = stream.write_all(input);
    let (mut replies, mut buffer) = (Vec::new(), [0; 65536]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (replies, true),
            Ok(len) => replies.extend_from_slice(&buffer[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return (replies, false);
            }
            Err(_) => return (replies, true),
        }
    }
}

/// Escapes bytes so that [`unescape`] reads them again.
fn shorten(bytes: &[u8]) -> String {
    let (mut text, mut rest) = (String::new(), bytes);
    while let [byte, ..] = rest {
        let run = rest.iter().take_while(|next| *next == byte).count();
        if run > 16 && byte.is_ascii_alphanumeric() {
            text += &format!("[{}*{run}]", char::from(*byte));
            rest = &rest[run..];
            continue;
        }
        match byte {
            b'[' => text += "\\[",
            byte => text += &byte.escape_ascii().to_string().replace("\\'", "'").replace("\\\"", "\""),
        }
        rest = &rest[1..];
    }
    text
}
