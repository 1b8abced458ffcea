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
pub(super) struct Scans(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the order of their last use.
    kept: VecDeque<Kept<Scan>>,
    /// Counts the changes of the login.
    login: u64,
}

/// A scan at a cursor.
struct Kept<S> {
    cursor: u64,
    /// The cursor that led to this one; 0 for that of the first reply.
    before: u64,
    /// When it was last used.
    since: Instant,
    /// It went on from here, and waits for a client that has lost the reply.
    is_spent: bool,
    scan: S,
}

impl Scans {
    /// The number of the login, for [`step`](Self::step).
    pub(super) fn login(&self) -> u64 {
        lock(&self.0).login
    }

    /// Answers SCAN. Each reply has a new cursor. The options are those with which the scan began. `login` is that of the client; without
    /// one, or if there is another by the end of the step, the scan does not go on.
    pub(super) async fn step(
        &self,
        client: &Client,
        login: Option<u64>,
        words: &[&[u8]],
    ) -> Result<Reply, Error> {
        let [_, cursor, options @ ..] = words else {
            return Ok(Reply::error("ERR wrong number of arguments for 'scan' command"));
        };
        let Some(cursor) = number(cursor) else {
            return Ok(Reply::error("ERR invalid cursor"));
        };
        let found = match cursor {
            0 => begin(client, options),
            _ => self.at(cursor).ok_or(UNKNOWN),
        };
        let mut scan = match found {
            Ok(scan) => scan,
            Err(refusal) => return Ok(Reply::error(refusal)),
        };
        // After an error the scan is still kept at this cursor: the client may try again.
        let (next, keys) = match scan.next_batch().await? {
            Some(keys) => (next_cursor(), keys),
            None => (0, Vec::new()),
        };
        let mut state = lock(&self.0);
        if login == Some(state.login) {
            go_on(&mut state.kept, cursor, (next > 0).then_some((next, scan)));
        }
        Ok(reply(next, keys))
    }

    fn at(&self, cursor: u64) -> Option<Scan> {
        lock(&self.0).kept.iter().find(|kept| kept.cursor == cursor).map(|kept| kept.scan.clone())
    }

    /// Forgets the scans that their clients do not continue.
    pub(super) fn forget_abandoned(&self) {
        forget_abandoned(&mut lock(&self.0).kept);
    }

    /// Forgets all of them, also those that are in a step now: each keeps the connections that it began with, and these have a former login.
    pub(super) fn clear(&self) {
        let mut state = lock(&self.0);
        state.login += 1;
        state.kept.clear();
    }
}

/// A scan went on from a cursor, and is now at another, or at its end. It stays at the first one too: a client whose connection is lost
/// before the reply has come sends that cursor again. By the cursor that it sends, a client shows that it needs the one before no more.
fn go_on<S>(all: &mut VecDeque<Kept<S>>, from: u64, to: Option<(u64, S)>) {
    let since = Instant::now();
    let found = all.iter().position(|kept| kept.cursor == from);
    if let Some(spent) = found.and_then(|at| all.remove(at)) {
        all.retain(|kept| kept.cursor != spent.before);
        all.push_back(Kept { since, is_spent: true, ..spent });
    }
    if let Some((cursor, scan)) = to {
        all.push_back(Kept { cursor, before: from, since, is_spent: false, scan });
    }
    if all.len() > MOST_SCANS {
        let least = all.iter().position(|kept| kept.is_spent).unwrap_or(0);
        drop(all.remove(least));
    }
}

/// A number that no other reply has had, also of an earlier process in all likelihood: no client continues the scan of a stranger. Programs
/// that keep it as a floating-point number lose nothing of it.
fn next_cursor() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(fastrand::u64(1..1 << 52)));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn forget_abandoned<S>(all: &mut VecDeque<Kept<S>>) {
    let abandoned = all.partition_point(|kept| kept.since.elapsed() > ABANDONED);
    drop(all.drain(..abandoned));
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

/// Most scans and cursors that they went on from, 16 KiB each. Beyond this, the one that was not used for the longest time is forgotten: one
/// that only a lost reply would need, if there is any.
const MOST_SCANS: usize = 1024;
/// A scan that was not used for this long is forgotten.
const ABANDONED: Duration = Duration::from_secs(600);
const SYNTAX: &str = "ERR syntax error";
const UNKNOWN: &str =
    "ERR invalid cursor: the gateway of a cluster does not know this scan any more; begin again with 0";

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn cursors(all: &VecDeque<Kept<()>>) -> Vec<u64> {
        all.iter().map(|kept| kept.cursor).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_scan_that_is_not_continued_is_forgotten() {
        let mut all = VecDeque::new();
        go_on(&mut all, 0, Some((1, ())));
        advance(ABANDONED).await;
        go_on(&mut all, 0, Some((2, ())));
        forget_abandoned(&mut all);
        assert_eq!(cursors(&all), [1, 2], "both are within their time");
        advance(ABANDONED).await;
        forget_abandoned(&mut all);
        assert_eq!(cursors(&all), [2]);
    }

    #[test]
    fn a_scan_is_kept_where_its_client_may_be() {
        let mut all = VecDeque::new();
        go_on(&mut all, 0, Some((1, ())));
        go_on(&mut all, 1, Some((2, ())));
        assert_eq!(cursors(&all), [1, 2]);
        go_on(&mut all, 1, Some((3, ())));
        assert_eq!(cursors(&all), [2, 1, 3], "one of the two replies is lost");
        go_on(&mut all, 3, Some((4, ())));
        assert_eq!(cursors(&all), [2, 3, 4], "its client has had 3");
        go_on(&mut all, 4, None);
        assert_eq!(cursors(&all), [2, 4], "the last reply may be lost too");
    }

    #[test]
    fn scans_that_go_on_take_the_places_of_those_that_went_on() {
        let mut all = VecDeque::new();
        let most = MOST_SCANS as u64;
        for cursor in 1..=most {
            go_on(&mut all, 0, Some((cursor, ())));
        }
        go_on(&mut all, 2, None);
        go_on(&mut all, 0, Some((most + 1, ())));
        assert!(cursors(&all).iter().copied().eq((1..=most + 1).filter(|cursor| *cursor != 2)));
        go_on(&mut all, 0, Some((most + 2, ())));
        assert_eq!((all.len(), all[0].cursor), (MOST_SCANS, 3), "the longest unused of those that go on");
    }
}
