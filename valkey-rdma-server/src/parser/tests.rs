use std::future::poll_fn;

use tokio::io::{AsyncWriteExt, duplex};

use super::*;

/// Feeds `pieces` and returns the commands found, as words, and the error that ended it, if any.
async fn parse(pieces: &[&[u8]], config: &Config) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let mut parser = Parser::new(config);
    let mut commands = Vec::new();
    for piece in pieces {
        let mut piece = *piece;
        while !piece.is_empty() {
            let before = piece.len();
            poll_fn(|cx| parser.poll_read(&mut piece, cx)).await.unwrap();
            assert!(piece.len() < before, "the parser must take what there is");
        }
        loop {
            match parser.next_command(true) {
                Ok(Some(command)) => {
                    let mut words = vec![command.name().to_vec()];
                    words.extend(command.args().iter().map(|arg| arg.to_vec()));
                    commands.push(words);
                }
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[tokio::test]
async fn a_pipeline_split_at_any_byte_is_the_same_pipeline() {
    let input =
        b"*2\r\n$4\r\nECHO\r\n$5\r\na\r\nbc\r\nPING\r\n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\nSET \"a b\" c\n";
    let expected =
        vec![words(&["ECHO", "a\r\nbc"]), words(&["PING"]), words(&[""]), words(&["SET", "a b", "c"])];
    for at in 0..=input.len() {
        let (left, right) = input.split_at(at);
        assert_eq!(
            parse(&[left, right], &Config::default()).await,
            (expected.clone(), None),
            "split at {at}"
        );
    }
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(parse(&bytes, &Config::default()).await, (expected, None));
}

#[tokio::test]
async fn large_arguments_in_pieces_arrive_whole() {
    for len in [Command::LARGE - 1, Command::LARGE, READ_BUFFER, READ_BUFFER + 1, GROWTH + 17] {
        let value: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let mut input = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${len}\r\n").into_bytes();
        input.extend_from_slice(&value);
        input.extend_from_slice(b"\r\nPING\r\n");
        for step in [1000, READ_BUFFER + 1, usize::MAX] {
            let pieces: Vec<&[u8]> = input.chunks(step.min(input.len())).collect();
            let (commands, error) = parse(&pieces, &Config::default()).await;
            assert_eq!(error, None);
            assert_eq!(commands.len(), 2);
            assert!(commands[0][2] == value, "{len} bytes in pieces of {step}");
        }
    }
}

#[tokio::test]
async fn a_large_argument_wastes_no_memory_and_a_claimed_one_takes_none() {
    let config = Config::default();
    let mut parser = Parser::new(&config);
    let mut input: &[u8] = b"*1\r\n$536870912\r\nabc";
    poll_fn(|cx| parser.poll_read(&mut input, cx)).await.unwrap();
    assert_eq!(parser.next_command(true), Ok(None));
    assert_eq!(parser.large.as_ref().unwrap().bytes.capacity(), GROWTH);

    let mut parser = Parser::new(&config);
    let len = 2 * GROWTH + 5;
    let text = [format!("*1\r\n${len}\r\n").as_bytes(), &vec![b'x'; len], b"\r\n"].concat();
    let mut input = &text[..];
    while !input.is_empty() {
        assert_eq!(parser.next_command(true), Ok(None));
        poll_fn(|cx| parser.poll_read(&mut input, cx)).await.unwrap();
    }
    assert_eq!(parser.large.as_ref().unwrap().bytes.capacity(), len + LINE_END);
    assert_eq!(parser.next_command(true).unwrap().unwrap().name().len(), len);
}

#[tokio::test]
async fn memory_of_a_burst_is_given_back() {
    let mut parser = Parser::new(&Config::default());
    let burst = b"PING\r\n".repeat(1_000_000);
    let mut input = &burst[..];
    while !input.is_empty() {
        poll_fn(|cx| parser.poll_read(&mut input, cx)).await.unwrap();
    }
    assert_eq!(parser.pending(), burst.len());
    for _ in 0..1_000_000 {
        assert!(parser.next_command(true).unwrap().is_some());
    }
    assert_eq!(parser.pending(), 0);
    for _ in 0..2 {
        let mut input: &[u8] = b"PING\r\n";
        poll_fn(|cx| parser.poll_read(&mut input, cx)).await.unwrap();
        assert!(parser.next_command(true).unwrap().is_some());
    }
    assert!(parser.buffer.capacity() <= 2 * READ_BUFFER, "{}", parser.buffer.capacity());
}

#[tokio::test]
async fn reading_waits_for_bytes_and_sees_the_end() {
    let (mut ours, theirs) = duplex(64);
    let mut theirs = theirs;
    let mut parser = Parser::new(&Config::default());
    ours.write_all(b"PING\r\n").await.unwrap();
    assert_eq!(poll_fn(|cx| parser.poll_read(&mut theirs, cx)).await.unwrap(), 6);
    drop(ours);
    assert_eq!(poll_fn(|cx| parser.poll_read(&mut theirs, cx)).await.unwrap(), 0);
}

#[tokio::test]
async fn broken_syntax_has_valkeys_words() {
    let long = vec![b'1'; MAX_LINE + 1];
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"*x\r\n".into(), "Protocol error: invalid multibulk length"),
        (b"*1048577\r\n".into(), "Protocol error: invalid multibulk length"),
        (b"*99999999999999999999\r\n".into(), "Protocol error: invalid multibulk length"),
        (b"*1\r\n:1\r\n".into(), "Protocol error: expected '$', got ':'"),
        (b"*1\r\n$x\r\n".into(), "Protocol error: invalid bulk length"),
        (b"*1\r\n$-1\r\n".into(), "Protocol error: invalid bulk length"),
        (b"*1\r\n$536870913\r\n".into(), "Protocol error: invalid bulk length"),
        (b"ECHO \"a\r\n".into(), "Protocol error: unbalanced quotes in request"),
        ([b"*", &long[..]].concat(), "Protocol error: too big mbulk count string"),
        ([b"*1\r\n$", &long[..]].concat(), "Protocol error: too big bulk count string"),
        (long, "Protocol error: too big inline request"),
    ];
    for (input, expected) in cases {
        let (_, error) = parse(&[&input], &Config::default()).await;
        assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(expected));
    }
}

#[tokio::test]
async fn commands_before_the_error_are_found() {
    let (commands, error) = parse(&[b"PING\r\n*1\r\n:1\r\n"], &Config::default()).await;
    assert_eq!(commands, [words(&["PING"])]);
    assert_eq!(error, Some(ProtocolError::ExpectedBulk { found: b':' }));
}

#[test]
fn who_is_not_trusted_may_send_what_it_takes_to_log_in() {
    let words = |count: usize, len: usize| {
        [format!("*{count}\r\n"), format!("${len}\r\n{}\r\n", "x".repeat(len)).repeat(count)].concat()
    };
    for (input, expected) in [
        (words(10, 16_384), None),
        (words(11, 1), Some(ProtocolError::StrangerCount)),
        (words(1, 16_385), Some(ProtocolError::StrangerBulkLen)),
        ("*1048577\r\n".to_owned(), Some(ProtocolError::InvalidCount)),
        ("*1\r\n$536870913\r\n".to_owned(), Some(ProtocolError::InvalidBulkLen)),
    ] {
        let mut parser = Parser::new(&Config::default());
        parser.buffer.extend_from_slice(input.as_bytes());
        let outcome = parser.next_command(false);
        assert_eq!(outcome.as_ref().err(), expected.as_ref());
        assert_eq!(outcome.is_ok_and(|command| command.is_some()), expected.is_none());
    }
}
