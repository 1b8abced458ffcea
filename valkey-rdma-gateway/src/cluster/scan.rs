//! SCAN over the whole cluster: the gateway keeps where each scan is, and its cursors are numbers of the gateway.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use valkey_rdma_client::{Client, Error, Scan};
use valkey_rdma_resp::{Reply, integer};
use valkey_rdma_transport::sync::lock;

use crate::command::words::{is, number};

/// The scans of all local clients with one login, in the order of their last use: a pool of connections may continue a scan on another
/// connection.
#[derive(Default)]
pub(super) struct Scans {
    waiting: Mutex<VecDeque<(u64, Scan)>>,
    last: AtomicU64,
}

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
            match begin(client, options) {
                Ok(scan) => scan,
                Err(refusal) => return Ok(Reply::error(refusal)),
            }
        } else {
            let mut waiting = lock(&self.waiting);
            let found = waiting.iter().position(|(known, _)| *known == cursor);
            match found.and_then(|at| waiting.remove(at)) {
                Some((_, scan)) => scan,
                None => return Ok(Reply::error(UNKNOWN)),
            }
        };
        let batch = scan.next_batch().await;
        let (next, keys) = match batch {
            Ok(None) => return Ok(reply(0, Vec::new())),
            Ok(Some(keys)) => (self.last.fetch_add(1, Ordering::Relaxed) + 1, keys),
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
        waiting.push_back((cursor, scan));
        if waiting.len() > MOST_SCANS {
            waiting.pop_front();
        }
    }
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
const SYNTAX: &str = "ERR syntax error";
const UNKNOWN: &str =
    "ERR invalid cursor: the gateway of a cluster does not know this scan any more; begin again with 0";
