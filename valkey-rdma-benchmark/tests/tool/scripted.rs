//! A server on TCP that keeps what is SET and answers wrongly on request, and runs of the tool against it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

/// What a server does with a command: `None` closes the connection.
pub(crate) type Script = fn(&[Vec<u8>], &Keyspace) -> Option<Vec<u8>>;

/// What clients have SET.
pub(crate) type Keyspace = Mutex<HashMap<Vec<u8>, Vec<u8>>>;

/// A server that answers as its script says.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) keys: Arc<Keyspace>,
}

impl Server {
    /// Starts a server, which lives as long as the test's process.
    pub(crate) fn start(script: Script) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let keys = Arc::new(Keyspace::default());
        let shared = Arc::clone(&keys);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, keys) = (stream.unwrap(), Arc::clone(&shared));
                thread::spawn(move || serve(&stream, script, &keys));
            }
        });
        Server { addr, keys }
    }
}

fn serve(stream: &TcpStream, script: Script, keys: &Keyspace) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    while let Some(command) = command(&mut reader) {
        match script(&command, keys) {
            Some(reply) => writer.write_all(&reply).unwrap_or_default(),
            None => return stream.shutdown(std::net::Shutdown::Both).unwrap_or_default(),
        }
    }
}

fn command(reader: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    (0..number(reader, b'*')?)
        .map(|_| {
            let mut argument = vec![0; number(reader, b'$')? + 2];
            reader.read_exact(&mut argument).ok()?;
            argument.truncate(argument.len() - 2);
            Some(argument)
        })
        .collect()
}

fn number(reader: &mut impl BufRead, kind: u8) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.strip_prefix(char::from(kind))?.trim_end().parse().ok()
}

/// Every answer right.
pub(crate) fn right(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    let reply = match (&command[0][..], &command[1..]) {
        (b"PING", []) => b"+PONG\r\n".to_vec(),
        (b"PING", [word]) => bulk(word),
        (b"HELLO", _) => b"%1\r\n$5\r\nproto\r\n:3\r\n".to_vec(),
        (b"SET", [key, value]) => {
            keys.lock().unwrap().insert(key.clone(), value.clone());
            b"+OK\r\n".to_vec()
        }
        (b"SET", [key, value, nx]) if nx == b"NX" => match keys.lock().unwrap().entry(key.clone()) {
            Entry::Occupied(_) => b"$-1\r\n".to_vec(),
            Entry::Vacant(free) => {
                free.insert(value.clone());
                b"+OK\r\n".to_vec()
            }
        },
        (b"GET", [key]) => match keys.lock().unwrap().get(key) {
            Some(value) => bulk(value),
            None => b"$-1\r\n".to_vec(),
        },
        _ => b"+OK\r\n".to_vec(),
    };
    Some(reply)
}

pub(crate) fn bulk(value: &[u8]) -> Vec<u8> {
    let mut reply = format!("${}\r\n", value.len()).into_bytes();
    reply.extend_from_slice(value);
    reply.extend_from_slice(b"\r\n");
    reply
}

/// Runs the tool to its end.
pub(crate) fn tool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_valkey-rdma-benchmark")).args(args).output().unwrap()
}

/// Runs the tool over TCP against `addr`.
pub(crate) fn tool_at(addr: SocketAddr, flags: &str) -> Output {
    let url = format!("valkey://{addr}");
    let args: Vec<&str> = ["--url", &url].into_iter().chain(flags.split_whitespace()).collect();
    tool(&args)
}

pub(crate) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// Without the note of what a run writes, which every run of a writing test begins with.
pub(crate) fn stderr(output: &Output) -> &str {
    let text = std::str::from_utf8(&output.stderr).unwrap();
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("note: writes ") => rest,
        _ => text,
    }
}
