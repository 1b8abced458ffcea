use super::*;

/// Valkey's default.
const MAX_ARGUMENT: usize = 512 * 1024 * 1024;

impl Parser {
    /// Appends as much of `input` as there is room for in one step, as a stream would.
    fn read(&mut self, input: &mut &[u8]) {
        let len = match self.room() {
            Room::Buffer(buffer) => {
                let len = input.len().min(buffer.capacity() - buffer.len());
                buffer.put(&input[..len]);
                len
            }
            Room::Argument(mut argument) => {
                let len = input.len().min(argument.remaining_mut());
                argument.put(&input[..len]);
                len
            }
        };
        assert!(len > 0 || input.is_empty(), "there must be room");
        input.advance(len);
    }
}

/// Parses `pieces` and returns the commands found, as words, and the final error, if any.
fn parse(pieces: &[&[u8]]) -> (Vec<Vec<Vec<u8>>>, Option<CommandError>) {
    let mut parser = Parser::new(MAX_ARGUMENT);
    let mut commands = Vec::new();
    for piece in pieces {
        let mut piece = *piece;
        while !piece.is_empty() {
            parser.read(&mut piece);
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

#[test]
fn a_pipeline_split_at_any_byte_is_the_same_pipeline() {
    let input =
        b"*2\r\n$4\r\nECHO\r\n$5\r\na\r\nbc\r\nPING\r\n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\nSET \"a b\" c\n";
    let expected =
        vec![words(&["ECHO", "a\r\nbc"]), words(&["PING"]), words(&[""]), words(&["SET", "a b", "c"])];
    for at in 0..=input.len() {
        let (left, right) = input.split_at(at);
        assert_eq!(parse(&[left, right]), (expected.clone(), None), "split at {at}");
    }
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(parse(&bytes), (expected, None));
}

#[test]
fn large_arguments_in_pieces_arrive_whole() {
    for len in [Command::LARGE - 1, Command::LARGE, READ_BUFFER, READ_BUFFER + 1, GROWTH + 17] {
        let value: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let mut input = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${len}\r\n").into_bytes();
        input.extend_from_slice(&value);
        input.extend_from_slice(b"\r\nPING\r\n");
        for step in [1000, READ_BUFFER + 1, usize::MAX] {
            let pieces: Vec<&[u8]> = input.chunks(step.min(input.len())).collect();
            let (commands, error) = parse(&pieces);
            assert_eq!(error, None);
            assert_eq!(commands.len(), 2);
            assert!(commands[0][2] == value, "{len} bytes in pieces of {step}");
        }
    }
}

#[test]
fn a_large_argument_wastes_no_memory_and_a_claimed_one_takes_none() {
    let mut parser = Parser::new(MAX_ARGUMENT);
    let mut input: &[u8] = b"*1\r\n$536870912\r\nabc";
    parser.read(&mut input);
    assert_eq!(parser.next_command(true), Ok(None));
    assert_eq!(parser.large.as_ref().unwrap().bytes.capacity(), GROWTH);

    let mut parser = Parser::new(MAX_ARGUMENT);
    let len = 2 * GROWTH + 5;
    let text = [format!("*1\r\n${len}\r\n").as_bytes(), &vec![b'x'; len], b"\r\n"].concat();
    let mut input = &text[..];
    while !input.is_empty() {
        assert_eq!(parser.next_command(true), Ok(None));
        parser.read(&mut input);
    }
    assert_eq!(parser.large.as_ref().unwrap().bytes.capacity(), len + LINE_END);
    assert_eq!(parser.next_command(true).unwrap().unwrap().name().len(), len);
}

#[test]
fn memory_of_a_burst_is_given_back() {
    let mut parser = Parser::new(MAX_ARGUMENT);
    let burst = b"PING\r\n".repeat(1_000_000);
    let mut input = &burst[..];
    while !input.is_empty() {
        parser.read(&mut input);
    }
    assert_eq!(parser.pending(), burst.len());
    for _ in 0..1_000_000 {
        assert!(parser.next_command(true).unwrap().is_some());
    }
    assert_eq!(parser.pending(), 0);
    for _ in 0..2 {
        let mut input: &[u8] = b"PING\r\n";
        parser.read(&mut input);
        assert!(parser.next_command(true).unwrap().is_some());
    }
    assert!(parser.buffer.capacity() <= 2 * READ_BUFFER, "{}", parser.buffer.capacity());
}

#[test]
fn syntax_errors_have_valkeys_texts() {
    let long = vec![b'1'; MAX_LINE + 1];
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"*x\r\n".into(), "Protocol error: invalid multibulk length"),
        (b"*2147483648\r\n".into(), "Protocol error: invalid multibulk length"),
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
        let (_, error) = parse(&[&input]);
        assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(expected));
    }
}

#[test]
fn commands_before_the_error_are_found() {
    let (commands, error) = parse(&[b"PING\r\n*1\r\n:1\r\n"]);
    assert_eq!(commands, [words(&["PING"])]);
    assert_eq!(error, Some(CommandError::ExpectedBulk { found: b':' }));
}

#[test]
fn an_untrusted_client_may_send_enough_to_log_in() {
    let words = |count: usize, len: usize| {
        [format!("*{count}\r\n"), format!("${len}\r\n{}\r\n", "x".repeat(len)).repeat(count)].concat()
    };
    for (input, expected) in [
        (words(10, 16_384), None),
        (words(11, 1), Some(CommandError::UntrustedCount)),
        (words(1, 16_385), Some(CommandError::UntrustedBulkLen)),
        ("*2147483648\r\n".to_owned(), Some(CommandError::InvalidCount)),
        ("*1\r\n$536870913\r\n".to_owned(), Some(CommandError::InvalidBulkLen)),
    ] {
        let mut parser = Parser::new(MAX_ARGUMENT);
        parser.buffer.extend_from_slice(input.as_bytes());
        let outcome = parser.next_command(false);
        assert_eq!(outcome.as_ref().err(), expected.as_ref());
        assert_eq!(outcome.is_ok_and(|command| command.is_some()), expected.is_none());
    }
}

#[test]
fn memory_is_given_away_while_nothing_waits_in_it() {
    let mut parser = Parser::new(MAX_ARGUMENT);
    let whole: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    parser.read(&mut &whole[..]);
    assert_eq!(parser.take_buffer(), None, "a command waits");
    let command = parser.next_command(true).unwrap();
    assert_eq!(parser.take_buffer(), None, "a command holds a part");
    assert!(!parser.has_buffer(), "but not the connection");
    drop(command);

    parser.set_buffer(BytesMut::with_capacity(READ_BUFFER));
    parser.read(&mut &whole[..10]);
    assert_eq!(parser.next_command(true).unwrap(), None);
    assert_eq!(parser.take_buffer(), None, "half a command waits");
    parser.set_buffer(BytesMut::with_capacity(READ_BUFFER));
    parser.read(&mut &whole[10..]);
    assert!(parser.next_command(true).unwrap().is_some());
    assert_eq!(parser.take_buffer().map(|buffer| buffer.capacity()), Some(READ_BUFFER));
}

/// Words that come one by one must not hold a buffer each.
#[test]
fn the_words_of_a_slow_command_stay_together() {
    let mut parser = Parser::new(MAX_ARGUMENT);
    let mut spare = None;
    let mut received: &[u8] = b"*100\r\n";
    for _ in 0..100 {
        parser.read(&mut received);
        assert_eq!(parser.next_command(true).unwrap(), None);
        spare = parser.take_buffer().or(spare);
        received = b"$1\r\nx\r\n";
    }
    assert_eq!(spare, None);
}

#[test]
fn after_a_discard_it_parses_as_if_new() {
    // Each leaves another part of the state behind: a line looked at, words that are missing, a header, a large argument.
    let announced = format!("*2\r\n${}\r\nabc", Command::LARGE);
    for interrupted in ["PING", "*2\r\n", "*2\r\n$3\r\nGET\r\n$3\r", "*2\r\n$9\r\nabc", &announced] {
        let mut parser = Parser::new(MAX_ARGUMENT);
        parser.read(&mut interrupted.as_bytes());
        assert_eq!(parser.next_command(true), Ok(None), "{interrupted:?}");
        parser.discard();
        assert_eq!(parser.pending(), 0, "{interrupted:?}");
        parser.read(&mut &b"x"[..]);
        assert_eq!(parser.next_command(true), Ok(None), "{interrupted:?}");
        parser.read(&mut &b" y\n"[..]);
        let command = parser.next_command(true).expect("a command").expect("all of it");
        assert_eq!((command.name(), command.args().len()), (&b"x"[..], 1), "{interrupted:?}");
    }
}
