//! [`input`]: what a hostile client sends.
//!
//! Not in it, because they are meant to change what others receive: commands that pause, end or empty the server, kill clients, or write the
//! keys of the witness.

use fastrand::Rng;

use crate::support::encode;

/// Whole commands, with which an input is made. `#` is a small number, `%` a key, `@` a value.
const LINES: &[&str] = &[
    "PING",
    "PING @",
    "ECHO @",
    "GET %",
    "SET % @",
    "SET % @ GET",
    "INCR %",
    "DEL % %",
    "MGET % % %",
    "MSET % @ % @",
    "APPEND % @",
    "LPUSH % @ @",
    "LRANGE % 0 #",
    "BLPOP % 0.01",
    "BLMOVE % % LEFT RIGHT 0.01",
    "BZPOPMIN % 0.01",
    "HSET % @ @",
    "HGETALL %",
    "SADD % @",
    "SMEMBERS %",
    "ZADD % # @",
    "ZRANGE % 0 # WITHSCORES",
    "XADD % * f @",
    "XREAD BLOCK # STREAMS % $",
    "XRANGE % - +",
    "MULTI",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH %",
    "UNWATCH",
    "SUBSCRIBE %",
    "PSUBSCRIBE %*",
    "SSUBSCRIBE %",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE %",
    "PUBLISH % @",
    "SPUBLISH % @",
    "HELLO",
    "HELLO 2",
    "HELLO 3",
    "HELLO 3 AUTH witness wrong",
    "HELLO 3 AUTH witness right",
    "HELLO 4",
    "HELLO 2 SETNAME @",
    "AUTH wrong",
    "AUTH witness right",
    "AUTH default right",
    "AUTH witness wrong",
    "AUTH @ @ @",
    "SELECT #",
    "SELECT 0",
    "RESET",
    "QUIT",
    "CLIENT ID",
    "CLIENT INFO",
    "CLIENT LIST",
    "CLIENT GETNAME",
    "CLIENT SETNAME @",
    "CLIENT SETINFO lib-name @",
    "CLIENT REPLY OFF",
    "CLIENT REPLY ON",
    "CLIENT REPLY SKIP",
    "CLIENT TRACKING ON",
    "CLIENT TRACKING ON BCAST PREFIX %",
    // The witnesses have the first numbers. As in a server, they would get the invalidations.
    "CLIENT TRACKING ON REDIRECT 9#",
    "CLIENT TRACKING OFF",
    "CLIENT CACHING YES",
    "CLIENT CAPA redirect",
    "CLIENT NO-EVICT ON",
    "CLIENT NO-TOUCH ON",
    "CLIENT UNBLOCK #",
    "CLIENT UNPAUSE",
    "EVAL return{ARGV[1]} 0 @",
    "EVAL return(redis.call('GET',KEYS[1])) 1 %",
    "EVALSHA @ 0",
    "FCALL @ 0",
    "SCRIPT EXISTS @",
    "SCRIPT KILL",
    "FUNCTION KILL",
    "FUNCTION STATS",
    "FUNCTION LOAD @",
    "WAIT 0 #",
    "MONITOR",
    "COMMAND COUNT",
    "COMMAND INFO get @",
    "INFO",
    "INFO gateway",
    "DBSIZE",
    "SCAN 0 COUNT #",
    "KEYS %",
    "TYPE %",
    "OBJECT ENCODING %",
    "EXPIRE % #",
    "TTL %",
    "RENAME % %",
    "COPY % %",
    "SORT %",
    "LATENCY LATEST",
    "SLOWLOG GET #",
    "ACL WHOAMI",
    "READONLY",
    "READWRITE",
    "ASKING",
    "CLUSTER SLOTS",
    "CLUSTER SYNCSLOTS ESTABLISH",
    "MEMORY USAGE %",
    "DUMP %",
    "RESTORE % 0 @",
    "GETRANGE % 0 #",
    "LCS % %",
    "PFADD % @",
    "GEOADD % # # @",
    "REPLCONF ACK #",
    "NOSUCH @ %",
    "@",
    "POST / HTTP/1.1",
    "Host: x",
];

/// Lengths and counts that are none, or more than there is.
const NUMBERS: &[&str] = &[
    "-1",
    "-0",
    "+1",
    "00",
    "01",
    "1 ",
    " 1",
    "",
    "x",
    "0x10",
    "1e3",
    "-2147483648",
    "2147483647",
    "2147483648",
    "4294967296",
    "65536",
    "1048576",
    "1048577",
    "536870912",
    "536870913",
    "2000000000",
    "20000000000",
    "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999999",
    "\0",
    "1\0",
    "1\r",
    "1\n",
];

/// All that a client sends.
pub(crate) fn input(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(1..20) {
        bytes.extend(item(rng));
    }
    if rng.u8(..) < 60 {
        let count = rng.usize(1..4);
        (0..count).for_each(|_| mutate(rng, &mut bytes));
    }
    if rng.u8(..) < 20 {
        bytes.truncate(rng.usize(..=bytes.len()));
    }
    bytes
}

/// One command, or what looks like one.
fn item(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..100) {
        0..60 => encode(command(rng)),
        60..70 => {
            let mut bytes = encode(command(rng));
            mutate(rng, &mut bytes);
            bytes
        }
        70..76 => with_number(rng),
        76..82 => inline(rng),
        82..86 => encode([b"ECHO".to_vec(), random(rng, 100_000)]),
        86..89 => encode(command(rng)).repeat(rng.usize(2..100)),
        89..91 => random(rng, 300),
        91..93 => without_line_end(rng),
        93..95 => [&b"*0\r\n"[..], b"*-1\r\n", b"\r\n", b"\n", b"\r", b"\0"][rng.usize(..6)]
            .repeat(rng.usize(1..50)),
        95..97 => {
            let count = rng.usize(1..200);
            let words = (0..count).map(|_| word(rng, "@"));
            encode([b"MGET".to_vec()].into_iter().chain(words))
        }
        _ => {
            let mut bytes = encode(command(rng));
            bytes.truncate(rng.usize(..bytes.len()));
            bytes
        }
    }
}

fn command(rng: &mut Rng) -> Vec<Vec<u8>> {
    let line = LINES[rng.usize(..LINES.len())];
    let mut words: Vec<_> = line.split(' ').map(|text| word(rng, text)).collect();
    match rng.u8(..40) {
        0 => drop(words.pop()),
        1 => words.push(word(rng, "@")),
        2 => words[0].make_ascii_lowercase(),
        _ => {}
    }
    words
}

fn word(rng: &mut Rng, text: &str) -> Vec<u8> {
    match text {
        "%" => format!("key{}", rng.u8(..8)).into_bytes(),
        "#" => rng.u32(..100).to_string().into_bytes(),
        "@" => match rng.u8(..10) {
            0 => random(rng, 6000),
            1 => Vec::new(),
            2 => b"a\r\n$1\r\nb\r\n*1\r\n".to_vec(),
            _ => random(rng, 20),
        },
        text => text.replace('%', "key").into_bytes(),
    }
}

fn random(rng: &mut Rng, most: usize) -> Vec<u8> {
    let len = rng.usize(..most);
    match rng.bool() {
        true => (0..len).map(|_| rng.u8(..)).collect(),
        false => vec![rng.u8(..); len],
    }
}

/// A command one of whose lengths is another one.
fn with_number(rng: &mut Rng) -> Vec<u8> {
    let bytes = encode(command(rng));
    let headers: Vec<_> = (0..bytes.len()).filter(|&at| matches!(bytes[at], b'*' | b'$')).collect();
    let at = headers[rng.usize(..headers.len())] + 1;
    let end = at + bytes[at..].iter().position(|byte| *byte == b'\r').unwrap_or(0);
    let number = match std::str::from_utf8(&bytes[at..end]).ok().and_then(|text| text.parse::<i64>().ok()) {
        Some(number) if rng.bool() => (number + rng.i64(-2..=2)).to_string(),
        _ => NUMBERS[rng.usize(..NUMBERS.len())].to_owned(),
    };
    [&bytes[..at], number.as_bytes(), &bytes[end..]].concat()
}

fn without_line_end(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = encode(command(rng));
    let ends: Vec<_> = (0..bytes.len()).filter(|&at| matches!(bytes[at], b'\r' | b'\n')).collect();
    bytes[ends[rng.usize(..ends.len())]] = rng.u8(..);
    bytes
}

fn inline(rng: &mut Rng) -> Vec<u8> {
    let mut line = command(rng).join(&b' ');
    if rng.u8(..4) == 0 {
        let at = rng.usize(..=line.len());
        line.insert(at, *b"\"'\\".get(rng.usize(..3)).unwrap_or(&b'"'));
    }
    line.extend_from_slice(if rng.bool() { b"\r\n" } else { b"\n" });
    line
}

/// Changes some bytes.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = rng.usize(..bytes.len());
    match rng.u8(..6) {
        0 => bytes[at] ^= 1 << rng.u8(..8),
        1 => bytes[at] = rng.u8(..),
        2 => drop(bytes.remove(at)),
        3 => bytes.insert(at, *b"\r\n$*-0 \0".get(rng.usize(..8)).unwrap_or(&0)),
        4 => {
            let end = (at + rng.usize(1..30)).min(bytes.len());
            drop(bytes.drain(at..end));
        }
        _ => {
            let end = (at + rng.usize(1..30)).min(bytes.len());
            let part = bytes[at..end].to_vec();
            let to = rng.usize(..=bytes.len());
            bytes.splice(to..to, part);
        }
    }
}
