//! `valkey-rdma-gateway top`: what a running gateway does, second by second.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use valkey_rdma_gateway::Listen;
use valkey_rdma_resp::{Decoder, Protocol, ServerError, Value};

/// Prints a table every second, until the gateway closes the connection. With `once`, prints the figures since the start.
pub(super) fn run(address: &Listen, once: bool) -> Result<(), String> {
    let failed = |error: io::Error| format!("{address}: {error}; is a gateway listening there?");
    let mut connection: Box<dyn Connection> = match address {
        Listen::Unix(path) => Box::new(UnixStream::connect(path).map_err(failed)?),
        Listen::Tcp(addr) => Box::new(TcpStream::connect(addr).map_err(failed)?),
        other => return Err(format!("{other}: top connects to unix:PATH or tcp:ADDR:PORT")),
    };
    let mut before = Sample::default();
    let terminal = !once && io::stdout().is_terminal();
    loop {
        let sample = Sample::take(&mut *connection).map_err(|error| match error.get_ref() {
            Some(answer) if answer.is::<ServerError>() => {
                format!("{address}: {error}; root and the gateway's user need no permission of the server, at a unix: address")
            }
            _ if error.kind() == io::ErrorKind::Unsupported => format!("{address}: {error}"),
            _ => failed(error),
        })?;
        let table = sample.table(&before);
        // A file or pipe gets the tables alone, an empty line apart.
        let text = match terminal {
            true => screen(&table),
            false if once => table,
            false => table + "\n",
        };
        match write!(io::stdout(), "{text}").and_then(|()| io::stdout().flush()) {
            Ok(()) if once => return Ok(()),
            Ok(()) => {}
            // The program that reads the output, such as `head`, has ended.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(format!("cannot write to standard output: {error}")),
        }
        before = sample;
        sleep(Duration::from_secs(1));
    }
}

trait Connection: Read + Write {}
impl<S: Read + Write> Connection for S {}

/// The figures at one moment.
#[derive(Default)]
struct Sample {
    at: Option<Instant>,
    info: HashMap<String, String>,
    clients: Vec<HashMap<String, String>>,
}

impl Sample {
    fn take(connection: &mut dyn Connection) -> io::Result<Self> {
        connection.write_all(b"INFO gateway\r\nCLIENT LIST\r\n")?;
        let mut decoder = Decoder::new(Protocol::Resp2);
        let mut texts = Vec::new();
        while texts.len() < 2 {
            match decoder.next().map_err(io::Error::other)? {
                Some(Value::Error(error)) => return Err(io::Error::other(error)),
                Some(value) => texts.push(value.as_str().unwrap_or_default().to_owned()),
                None => {
                    let mut buffer = [0; 16 * 1024];
                    let len = connection.read(&mut buffer)?;
                    if len == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    decoder.room().extend_from_slice(&buffer[..len]);
                }
            }
        }
        let info = pairs(texts[0].lines(), ':');
        if !info.contains_key("gateway_version") {
            let text = "no gateway answers here: this is the server's own address, or the route has share=never (see /metrics)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let clients = texts[1].lines().map(|line| pairs(line.split(' '), '=')).collect();
        Ok(Self { at: Some(Instant::now()), info, clients })
    }

    fn text(&self, name: &str) -> &str {
        self.info.get(&format!("gateway_{name}")).map_or("?", String::as_str)
    }

    fn number(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or(0.0)
    }

    fn table(&self, before: &Self) -> String {
        let since = match (self.at, before.at) {
            (Some(now), Some(then)) => now.saturating_duration_since(then).as_secs_f64(),
            _ => self.number("uptime_in_seconds"),
        };
        let per_second = |now: f64, then: f64| (now - then).max(0.0) / since.max(0.001);
        let rate = |name: &str| per_second(self.number(name), before.number(name));
        let mut table = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "valkey-rdma-gateway {}, to {}, share={}, up {} s",
            self.text("version"),
            self.text("server"),
            self.text("share"),
            self.text("uptime_in_seconds")
        );
        let _ = writeln!(
            table,
            "{} clients{}, {} bytes unread; {} of {} connections",
            self.text("clients"),
            match self.text("clients_tls") {
                "0" | "?" => String::new(),
                encrypted => format!(" ({encrypted} with TLS)"),
            },
            self.text("unread_bytes"),
            self.text("connections"),
            self.text("connections_limit")
        );
        let batches = rate("batches");
        let _ = writeln!(
            table,
            "commands/s: {:.0} shared in {batches:.0} batches (of {:.1}), {:.0} private, {:.0} answered here",
            rate("commands_shared"),
            rate("commands_shared") / batches.max(0.001),
            rate("commands_private"),
            rate("commands_local")
        );
        for (part, what) in
            [("request", "to the server"), ("reply", "to the client"), ("server", "round trip")]
        {
            let [half, most] = ["p50", "p99"].map(|quantile| self.text(&format!("{part}_{quantile}_us")));
            let _ = writeln!(table, "{what:>14}: median {half} us, 99 % {most} us");
        }
        for number in 0.. {
            let Some(line) = self.info.get(&format!("gateway_shared_{number}")) else { break };
            let _ = writeln!(table, "shared {line}");
        }
        let commands = |client: &HashMap<String, String>| -> f64 {
            client.get("tot-cmds").and_then(|text| text.parse().ok()).unwrap_or(0.0)
        };
        // By id: a gateway may have 10 000 clients and more.
        let then: HashMap<_, _> =
            before.clients.iter().map(|client| (client.get("id"), commands(client))).collect();
        let rate_of =
            |client| per_second(commands(client), then.get(&client.get("id")).copied().unwrap_or(0.0));
        let mut busiest: Vec<_> = self.clients.iter().map(|client| (rate_of(client), client)).collect();
        busiest.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let mut rows =
            vec![["client", "commands/s", "idle s", "db", "name", "user", "from"].map(str::to_owned)];
        for (rate, client) in busiest.iter().take(MOST) {
            let field = |name: &str| client.get(name).cloned().unwrap_or_default();
            let [id, idle, db, name, user, addr] = ["id", "idle", "db", "name", "user", "addr"].map(field);
            rows.push([id, format!("{rate:.0}"), idle, db, name, user, addr]);
        }
        table + "\n" + &columns(&rows)
    }
}

/// Rows of cells, of which the first four are numbers. Names may be of any length: each column is as wide as its longest cell.
fn columns(rows: &[[String; 7]]) -> String {
    // Those of a usual table, so that it does not move from second to second.
    let mut widths = [8, 11, 6, 4, 12, 16, 0];
    for (at, width) in widths.iter_mut().enumerate().take(6) {
        *width = rows.iter().map(|row| row[at].chars().count()).fold(*width, usize::max);
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, width))| match at {
            0..4 => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        });
        let line = cells.collect::<Vec<_>>().join(" ");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The table on a screen of any size, from its top: what is too wide is cut, and what is too long is left out.
fn screen(table: &str) -> String {
    let rows: Vec<String> = table.lines().flat_map(folded).collect();
    // Without wrapping, a line is a row.
    let mut text = "\x1b[2J\x1b[?7l".to_owned();
    // A row below the screen appears in its last one. From the last to the first, the first ones stay.
    for (at, row) in rows.iter().enumerate().rev() {
        // Writing to a String cannot fail.
        let _ = write!(text, "\x1b[{};1H\x1b[2K{row}", at + 1);
    }
    // Where the shell goes on after Ctrl-C.
    let _ = write!(text, "\x1b[?7h\x1b[{};1H", rows.len() + 1);
    text
}

/// The line of a shared connection, in pieces that most screens have room for: its end says over what it is connected.
fn folded(line: &str) -> Vec<String> {
    let mut rows = vec![String::new()];
    let pieces = if line.starts_with("shared ") { line.split_inclusive(',').collect() } else { vec![line] };
    for piece in pieces {
        match rows.last_mut() {
            Some(row) if row.is_empty() || row.len() + piece.len() <= WIDTH => row.push_str(piece),
            _ => rows.push(format!("       {piece}")),
        }
    }
    rows
}

/// Names and values of words such as `name=value`.
fn pairs<'a>(words: impl Iterator<Item = &'a str>, separator: char) -> HashMap<String, String> {
    let pairs = words.filter_map(|word| word.split_once(separator));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Clients shown.
const MOST: usize = 20;
/// Columns of a usual screen.
const WIDTH: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_screen_shows_the_first_rows() {
        // What a terminal of three rows shows.
        let (mut shown, mut row) = ([""; 3], 1);
        let text = screen("one\ntwo\nthree\nfour\nfive\n");
        for part in text.split("\x1b[") {
            if let Some(to) = part.strip_suffix(";1H") {
                row = to.parse().unwrap();
            } else if let Some(line) = part.strip_prefix("2K") {
                shown[usize::min(row, 3) - 1] = line;
            }
        }
        assert_eq!(shown, ["one", "two", "three"]);
    }

    #[test]
    fn a_usual_screen_shows_a_shared_connection_to_its_end() {
        let line = "shared user=- db=0 resp2,clients=1,in_flight=0,owed_ms=0,commands=60052,batches=3721,wake_ups=0,\
                    pinned_bytes=0,transport=tcp,peer=127.0.0.1:6379";
        let rows = folded(line);
        assert!(rows.len() > 1 && rows.iter().all(|row| row.len() <= WIDTH), "{rows:?}");
        let whole: String = rows.iter().map(|row| row.trim_start()).collect();
        assert_eq!(whole, line);
    }

    #[test]
    fn the_busiest_of_many_clients_are_shown_with_what_they_did_since_the_last_table() {
        let count = 20_000;
        // The order of clients changes from list to list; the last one is new.
        let list = |ids: &mut dyn Iterator<Item = usize>, factor: usize| -> Vec<_> {
            ids.map(|id| pairs(format!("id={id} tot-cmds={}", factor * id).split(' '), '=')).collect()
        };
        let start = Instant::now();
        let before = Sample { at: Some(start), clients: list(&mut (0..count), 1), ..Sample::default() };
        let clients = list(&mut (0..=count).rev(), 2);
        let sample = Sample { at: Some(start + Duration::from_secs(1)), clients, ..Sample::default() };
        let table = sample.table(&before);
        let rows: Vec<_> = table.lines().rev().take(MOST).collect();
        let of = |row: &str| row.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(of(rows[MOST - 1]), ["20000", "40000"], "{table}");
        assert_eq!(of(rows[MOST - 2]), ["19999", "19999"], "{table}");
        assert_eq!(of(rows[0]), ["19981", "19981"], "{table}");
    }

    #[test]
    fn columns_are_aligned_whatever_the_names() {
        let client = |line: &str| pairs(line.split(' '), '=');
        let long = "a-service-with-a-long-name.production.example";
        let sample = Sample {
            clients: vec![
                client("id=1 idle=0 db=0 name=x user=default addr=10.0.0.1:5"),
                client(&format!("id=1234567890 idle=7 db=15 name={long} user={long} addr=10.0.0.2:5")),
            ],
            ..Sample::default()
        };
        let table = sample.table(&Sample::default());
        let places = |word: &str| {
            let line = table.lines().find(|line| line.contains(word)).unwrap_or_default();
            line.find(word)
        };
        assert_eq!(
            (places("from"), places("10.0.0.1:5")),
            (places("10.0.0.2:5"), places("10.0.0.2:5")),
            "{table}"
        );
        assert_eq!(places("user "), places("default"), "{table}");
    }
}
