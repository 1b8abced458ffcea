//! The mock's replies, byte by byte, compared with those of a real Valkey.
//!
//! The files in `tests/dialogues/` hold commands and the replies that a real valkey-server gave to them; `cargo test` runs
//! the commands against the mock. With `VALKEY_RDMA_REAL_SERVER` set to the path of a valkey-server, or to the
//! `host:port` of one without other clients, the ignored test runs them against that server too, and compares the recorded replies with
//! its replies. With `VALKEY_RDMA_RECORD=1` as well, that test writes the server's replies into the files.
//! `VALKEY_RDMA_DIALOGUE=streams` limits both tests to the files whose names contain `streams`. `CONTRIBUTING.md` has the commands.
//!
//! ```text
//! == a title                     connections are new from here on, and databases are empty
//! SET k v                        a command, as typed into valkey-cli
//!   = +OK|                       its reply, `|` for a line end
//! HGETALL h
//!   2 *2|$1|f|$1|v|              the reply in RESP2
//!   3 %1|$1|f|$1|v|              the reply in RESP3
//! TTL k
//!   =~ :#|                       `#` stands for any number; also `2~` and `3~`
//! ~ TTL k                        a new command whose numbers differ from run to run: recording moves the `~` to the reply
//!   ! +why not|                  the mock's own reply, always with a comment that gives the reason
//! @b SUBSCRIBE news              on another connection than `a`
//! @b/2                           reads two more replies or messages
//! @b/blocks BLPOP list 0         has no reply yet, but the server has begun to wait
//! @b/0 CLIENT REPLY OFF          has no reply
//! @b/2 SUBSCRIBE x y             has two replies
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use valkey_rdma_mock::{Mock, Server};
use valkey_rdma_testkit::{Child, ReservedPort, wait_until};

/// One step of a dialogue.
#[derive(Debug, Clone)]
struct Step {
    /// The lines before it that are not part of it: comments, titles, blank lines.
    before: Vec<String>,
    /// A new beginning.
    fresh: bool,
    connection: String,
    awaits: Awaits,
    command: String,
    masked: bool,
    resp2: Option<String>,
    resp3: Option<String>,
    /// What the mock says instead, in RESP2 and RESP3.
    deviation: [Option<String>; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Replies(usize),
    Blocking,
}

struct Dialogue {
    path: PathBuf,
    steps: Vec<Step>,
    /// Lines after the last step.
    after: Vec<String>,
}

impl Dialogue {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut steps: Vec<Step> = Vec::new();
        let (mut before, mut fresh) = (Vec::new(), steps.is_empty());
        for line in text.lines() {
            if let Some(reply) = line.strip_prefix("  ") {
                let step =
                    steps.last_mut().unwrap_or_else(|| panic!("{}: a reply to nothing", path.display()));
                let (which, reply) = reply.split_once(' ').unwrap_or((reply, ""));
                let which = match which.strip_suffix('~') {
                    Some(which) => {
                        step.masked = true;
                        which
                    }
                    None => which,
                };
                let reply = Some(reply.to_owned());
                match which {
                    "=" => (step.resp2, step.resp3) = (reply.clone(), reply),
                    "2" => step.resp2 = reply,
                    "3" => step.resp3 = reply,
                    "!" => step.deviation = [reply.clone(), reply],
                    "!2" => step.deviation[0] = reply,
                    "!3" => step.deviation[1] = reply,
                    other => panic!("{}: unknown mark {other:?} in {line:?}", path.display()),
                }
            } else if line.is_empty() || line.starts_with('#') || line.starts_with("== ") {
                fresh |= line.starts_with("== ");
                before.push(line.to_owned());
            } else {
                let mut step = Step::parse(line);
                step.before = std::mem::take(&mut before);
                step.fresh = std::mem::take(&mut fresh);
                steps.push(step);
            }
        }
        Self { path: path.to_owned(), steps, after: before }
    }

    fn write(&self) {
        let mut text = String::new();
        for step in &self.steps {
            for line in &step.before {
                writeln!(text, "{line}").unwrap();
            }
            writeln!(text, "{}", step.line()).unwrap();
            let mask = if step.masked { "~" } else { "" };
            let mut reply = |mark: &str, reply: &Option<String>, mask: &str| {
                if let Some(reply) = reply {
                    writeln!(text, "  {mark}{mask} {reply}").unwrap();
                }
            };
            if step.resp2 == step.resp3 {
                reply("=", &step.resp2, mask);
            } else {
                reply("2", &step.resp2, mask);
                reply("3", &step.resp3, mask);
            }
            if step.deviation[0] == step.deviation[1] {
                reply("!", &step.deviation[0], "");
            } else {
                reply("!2", &step.deviation[0], "");
                reply("!3", &step.deviation[1], "");
            }
        }
        for line in &self.after {
            writeln!(text, "{line}").unwrap();
        }
        std::fs::write(&self.path, text).unwrap();
    }
}

impl Step {
    fn parse(line: &str) -> Self {
        let (connection, command) = match line.strip_prefix('@') {
            Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
            None => ("a", line),
        };
        let (connection, count) = connection.split_once('/').unwrap_or((connection, "1"));
        let awaits = match count {
            "blocks" => Awaits::Blocking,
            count => Awaits::Replies(count.parse().unwrap_or_else(|_| panic!("{line:?}: how many replies?"))),
        };
        // `~ ` in front of a new command: its reply differs each time. Recording moves that to the reply.
        let (command, masked) = match command.strip_prefix("~ ") {
            Some(command) => (command, true),
            None => (command, false),
        };
        Self {
            before: Vec::new(),
            fresh: false,
            connection: connection.to_owned(),
            awaits,
            command: command.to_owned(),
            masked,
            resp2: None,
            resp3: None,
            deviation: [None, None],
        }
    }

    fn line(&self) -> String {
        let count = match self.awaits {
            Awaits::Replies(1) => String::new(),
            Awaits::Replies(count) => format!("/{count}"),
            Awaits::Blocking => "/blocks".to_owned(),
        };
        match (self.connection.as_str(), count.as_str()) {
            ("a", "") => self.command.clone(),
            (connection, count) => format!("@{connection}{count} {}", self.command).trim_end().to_owned(),
        }
    }

    fn expected(&mut self, protocol: u8) -> &mut Option<String> {
        if protocol == 2 { &mut self.resp2 } else { &mut self.resp3 }
    }
}

/// A client in literal bytes.
struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    fn connect(addr: &str, protocol: u8) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut wire = Self { stream, buffer: Vec::new() };
        wire.send(&format!("HELLO {protocol}"));
        wire.frame();
        wire
    }

    fn send(&mut self, command: &str) {
        self.stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    }

    /// One whole reply or message.
    fn frame(&mut self) -> Vec<u8> {
        loop {
            if let Some(len) = frame_len(&self.buffer) {
                return self.buffer.drain(..len).collect();
            }
            let mut piece = [0; 65536];
            match self.stream.read(&mut piece) {
                Ok(0) => return b"(closed)".to_vec(),
                Ok(len) => self.buffer.extend_from_slice(&piece[..len]),
                Err(error) => return format!("({error} after {})", shown(&self.buffer)).into_bytes(),
            }
        }
    }

    /// The reply to `command` as a text.
    fn ask(&mut self, command: &str) -> String {
        self.send(command);
        String::from_utf8(self.frame()).unwrap()
    }

    /// Everything until the server closes after `QUIT`.
    fn quit(mut self) -> Vec<u8> {
        // Gone already, if it was killed.
        let _ = self.stream.write_all(b"QUIT\r\n");
        let mut rest = std::mem::take(&mut self.buffer);
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }
}

/// Length of the first frame of `bytes`, once it is whole.
fn frame_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || str::from_utf8(&bytes[1..end - 2]).unwrap().parse::<i64>().unwrap();
    let items = match bytes[0] {
        b'$' | b'=' => {
            return Some(end + usize::try_from(number()).map_or(0, |len| len + 2))
                .filter(|len| bytes.len() >= *len);
        }
        b'*' | b'~' | b'>' => number(),
        b'%' => 2 * number(),
        _ => 0,
    };
    let mut len = end;
    for _ in 0..items {
        len += frame_len(&bytes[len..])?;
    }
    Some(len)
}

/// As it stands in the files.
fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    while let [byte, tail @ ..] = rest {
        match (byte, tail) {
            (b'\r', [b'\n', tail @ ..]) => {
                text.push('|');
                rest = tail;
                continue;
            }
            (b'|' | b'\\', _) => write!(text, "\\x{byte:02x}").unwrap(),
            (b' '..=b'~', _) => text.push(char::from(*byte)),
            _ => write!(text, "\\x{byte:02x}").unwrap(),
        }
        rest = tail;
    }
    text
}

/// With `#` for each number.
fn mask(text: &str) -> String {
    let mut masked = String::new();
    for character in text.chars() {
        match character {
            '0'..='9' if masked.ends_with('#') => {}
            '0'..='9' => masked.push('#'),
            other => masked.push(other),
        }
    }
    masked
}

/// Runs the steps in one protocol and hands each with its reply to `check`.
fn run(dialogue: &mut Dialogue, addr: &str, protocol: u8, mut check: impl FnMut(&Path, &mut Step, String)) {
    let mut control = Wire::connect(addr, 2);
    let mut wires: BTreeMap<String, Wire> = BTreeMap::new();
    for step in &mut dialogue.steps {
        if step.fresh {
            finish(&dialogue.path, std::mem::take(&mut wires), protocol);
            for command in ["FLUSHALL", "FUNCTION FLUSH"] {
                control.ask(command);
            }
        }
        let wire = wires.entry(step.connection.clone()).or_insert_with(|| Wire::connect(addr, protocol));
        let reply = match step.awaits {
            Awaits::Replies(count) => {
                if !step.command.is_empty() {
                    wire.send(&step.command);
                }
                (0..count).map(|_| shown(&wire.frame())).collect::<String>()
            }
            Awaits::Blocking => {
                let blocked = blocked_clients(&mut control);
                wire.send(&step.command);
                wait_until("the command blocks", PATIENCE, || blocked_clients(&mut control) > blocked);
                continue;
            }
        };
        let reply = if step.masked { mask(&reply) } else { reply };
        check(&dialogue.path, step, reply);
    }
    finish(&dialogue.path, wires, protocol);
}

/// No connection may have got anything that no step has read.
fn finish(path: &Path, wires: BTreeMap<String, Wire>, protocol: u8) {
    for (name, wire) in wires {
        let rest = shown(&wire.quit());
        assert!(
            rest == "+OK|" || rest.is_empty(),
            "{}, RESP{protocol}: @{name} also got {rest}",
            path.display()
        );
    }
}

fn blocked_clients(control: &mut Wire) -> u64 {
    let text = control.ask("INFO clients");
    let (_, rest) = text.split_once("blocked_clients:").unwrap();
    rest.split_once('\r').unwrap().0.parse().unwrap()
}

fn dialogues() -> Vec<Dialogue> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialogues");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let only = std::env::var("VALKEY_RDMA_DIALOGUE").unwrap_or_default();
    paths.retain(|path| path.file_name().unwrap().to_string_lossy().contains(&only));
    assert!(!paths.is_empty(), "no file of tests/dialogues/ has VALKEY_RDMA_DIALOGUE={only:?} in its name");
    paths.iter().map(|path| Dialogue::read(path)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mock_answers_as_recorded_from_a_real_server() {
    let server = Server::builder(Mock::new()).tcp("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let addr = server.listening()[0].addr.to_string();
    let (differences, steps) = tokio::task::spawn_blocking(move || {
        let (mut differences, mut steps) = (Vec::new(), 0);
        for mut dialogue in dialogues() {
            for protocol in [2, 3] {
                run(&mut dialogue, &addr, protocol, |path, step, reply| {
                    steps += 1;
                    let deviation = step.deviation[usize::from(protocol) - 2].clone();
                    let expected = deviation.or(step.expected(protocol).clone()).unwrap_or_default();
                    if reply != expected {
                        let file = path.file_stem().unwrap().to_string_lossy();
                        differences.push(format!(
                            "{file}, RESP{protocol}: {}\n  real {expected}\n  mock {reply}",
                            step.line()
                        ));
                    }
                });
            }
        }
        (differences, steps)
    })
    .await
    .unwrap();
    assert!(
        differences.is_empty(),
        "{} of {steps} replies differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// A real server: the one whose address was given, or one started from the path that was given.
struct Real {
    addr: String,
    _started: Option<(Child, ReservedPort)>,
}

impl Real {
    fn start(given: &str) -> Self {
        if !Path::new(given).exists() {
            return Self { addr: given.to_owned(), _started: None };
        }
        let reserved = ReservedPort::new();
        let port = reserved.addr().port();
        let mut command = Command::new(given);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]);
        let child = Child::start(&mut command).unwrap();
        child.line_with("Ready to accept connections", PATIENCE).unwrap();
        Self { addr: format!("127.0.0.1:{port}"), _started: Some((child, reserved)) }
    }
}

/// Longer than any step takes. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
#[ignore = "wants a real valkey-server in VALKEY_RDMA_REAL_SERVER"]
fn a_real_server_answers_as_recorded() {
    let given =
        std::env::var("VALKEY_RDMA_REAL_SERVER").expect("VALKEY_RDMA_REAL_SERVER names a real valkey-server");
    let record = std::env::var("VALKEY_RDMA_RECORD").is_ok_and(|value| value == "1");
    let real = Real::start(&given);
    let (mut differences, mut steps) = (Vec::new(), 0);
    for mut dialogue in dialogues() {
        for protocol in [2, 3] {
            run(&mut dialogue, &real.addr, protocol, |path, step, reply| {
                steps += 1;
                if record {
                    *step.expected(protocol) = Some(reply);
                } else if step.expected(protocol).as_ref() != Some(&reply) {
                    let file = path.file_stem().unwrap().to_string_lossy();
                    let recorded = step.expected(protocol).clone().unwrap_or_default();
                    differences.push(format!(
                        "{file}, RESP{protocol}: {}\n  recorded {recorded}\n  real     {reply}",
                        step.line()
                    ));
                }
            });
        }
        if record {
            dialogue.write();
        }
    }
    println!("{steps} replies of {given}");
    assert!(
        differences.is_empty(),
        "{} of {steps} replies differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}
