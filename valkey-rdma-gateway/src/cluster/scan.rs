//! SCAN over the whole cluster: the gateway keeps where each scan is, and its cursors are numbers of the gateway.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_client::{Client, Error, Scan};
use valkey_rdma_resp::{Reply, integer};
use valkey_rdma_transport::sync::lock;

use crate::command::words::{is, number};

/// The scans of all local clients with one login and protocol version: a pool of connections may continue a scan on another connection,
/// and a client may begin one behind a script.
#[derive(Default)]
pub(super) struct Scans {
    waiting: Mutex<Waiting<Scan>>,
}

/// Scans by their cursors, in the order of their last use, and when that was.
type Waiting<S> = VecDeque<(u64, Instant, S)>;

impl Scans {
    /// Answers SCAN. Each reply has a new cursor. The options are those with which the scan began.
    pub(super) async fn step(&self, client: &Client, words: &[&[u8]]) -> Result<Reply, Error> {
        let [_, cursor, options @ ..] = words else {
            return Ok(Reply::error("ERR wrong number of arguments for 'scan' command"));
        };
        let Some(cursor) = number(cursor) else {
            return Ok(Reply::error("ERR invalid cursor"));
        };
        let mut scan = if cursor == 0 {
            forget_abandoned(&mut lock(&self.waiting));
            match begin(client, options) {
                Ok(scan) => scan,
                Err(refusal) => return Ok(Reply::error(refusal)),
            }
        } else {
            let mut waiting = lock(&self.waiting);
            let found = waiting.iter().position(|(known, ..)| *known == cursor);
            match found.and_then(|at| waiting.remove(at)) {
                Some((.., scan)) => scan,
                None => return Ok(Reply::error(UNKNOWN)),
            }
        };
        let batch = scan.next_batch().await;
        let (next, keys) = match batch {
            Ok(None) => return Ok(reply(0, Vec::new())),
            Ok(Some(keys)) => (next_cursor(), keys),
            // The client may try again with the same cursor.
            Err(error) => {
                if cursor > 0 {
                    self.keep(cursor, scan);
                }
                return Err(error);
            }
        };
        self.keep(next, scan);
        Ok(reply(next, keys))
    }

    fn keep(&self, cursor: u64, scan: Scan) {
        let mut waiting = lock(&self.waiting);
        waiting.push_back((cursor, Instant::now(), scan));
        if waiting.len() > MOST_SCANS {
            waiting.pop_front();
        }
    }

    /// Forgets all of them: each keeps the connections that it began with, and these have a former login.
    pub(super) fn clear(&self) {
        lock(&self.waiting).clear();
    }
}

/// A number that no other reply has had, also of an earlier process in all likelihood: no client continues the scan of a stranger. Programs
/// that keep it as a floating-point number lose nothing of it.
fn next_cursor() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(fastrand::u64(1..1 << 52)));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Forgets the scans that their clients do not continue.
fn forget_abandoned<S>(waiting: &mut Waiting<S>) {
    let abandoned = waiting.partition_point(|(_, since, _)| since.elapsed() > ABANDONED);
    drop(waiting.drain(..abandoned));
}

/// # Errors
/// The error of a server for these options.
fn begin(client: &Client, options: &[&[u8]]) -> Result<Scan, &'static str> {
    let (pairs, rest) = options.as_chunks::<2>();
    if !rest.is_empty() {
        let is_for_hashes = rest.iter().any(|option| is(option, "NOVALUES"));
        return Err(if is_for_hashes { "ERR NOVALUES option can only be used in HSCAN" } else { SYNTAX });
    }
    let mut scan = client.scan();
    for [option, value] in pairs {
        scan = match *option {
            option if is(option, "MATCH") => scan.matching(*value),
            option if is(option, "TYPE") => scan.of_type(*value),
            option if is(option, "COUNT") => {
                let count = integer::parse(value).ok_or("ERR value is not an integer or out of range")?;
                scan.count(usize::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?)
            }
            _ => return Err(SYNTAX),
        };
    }
    Ok(scan)
}

fn reply(cursor: u64, keys: Vec<bytes::Bytes>) -> Reply {
    Reply::Array(vec![Reply::bulk(cursor.to_string()), Reply::array(keys)])
}

/// Scans that are not at their end, 16 KiB each. Beyond this, the one that was not continued for the longest time is forgotten.
const MOST_SCANS: usize = 1024;
/// A scan that was not continued for this long is forgotten when another begins.
const ABANDONED: Duration = Duration::from_secs(600);
const SYNTAX: &str = "ERR syntax error";
const UNKNOWN: &str =
    "ERR invalid cursor: the gateway of a cluster does not know this scan any more; begin again with 0";

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_scan_that_is_not_continued_is_forgotten() {
        let mut waiting = Waiting::from([(1, Instant::now(), ())]);
        advance(ABANDONED).await;
        waiting.push_back((2, Instant::now(), ()));
        forget_abandoned(&mut waiting);
        assert_eq!(waiting.len(), 2, "both are within their time");
        advance(ABANDONED).await;
        forget_abandoned(&mut waiting);
        assert_eq!(waiting.pop_front().map(|(cursor, ..)| cursor), Some(2));
    }
}
