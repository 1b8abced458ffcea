//! [`Refusals`]: what the server has refused, so that it is not asked again at once.
//!
//! A connection that is refused ends, and over RDMA that costs the server memory for good. A client without a login that goes on asking, or
//! one that selects databases that there are not, would cost it without end.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_transport::sync::lock;

use super::Pool;
use crate::upstream::identity::Key;
use crate::upstream::open_error::OpenError;

/// By login and protocol version.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<Key, Refusal>>);

struct Refusal {
    why: OpenError,
    /// The lowest that was refused, and those above it: clients may choose ever new ones. One that is [not the user's](is_not_the_users)
    /// says nothing of others, as long as there is no second one.
    databases: RangeInclusive<u32>,
    /// Until then it is the answer.
    until: Instant,
    wait: Duration,
}

impl Refusal {
    fn is_about(&self, key: &Key) -> bool {
        self.databases.contains(&key.database())
    }

    fn is_about_only(&self, key: &Key) -> bool {
        self.databases == (key.database()..=key.database())
    }
}

/// Whether the user has no access to the database, and may have it to another: the rule `db=` of Valkey 9.1.
fn is_not_the_users(why: &OpenError) -> bool {
    matches!(why, OpenError::Refused(reply) if reply.starts_with(b"-NOPERM No permissions to access database"))
}

/// Whether the server runs a script, which may end at any moment.
fn is_busy(why: &OpenError) -> bool {
    matches!(why, OpenError::Refused(reply) if reply.starts_with(b"-BUSY"))
}

impl Refusals {
    /// Why the last attempt was refused, however long ago that was.
    pub(super) fn last(&self, key: &Key) -> Option<OpenError> {
        let known = lock(&self.0);
        let refusal = known.get(&key.of_login()).filter(|refusal| refusal.is_about(key))?;
        Some(refusal.why.clone())
    }

    /// The same, if it is too early for the next attempt. Otherwise that is the caller's, and too early for others.
    pub(super) fn in_the_way(&self, key: &Key, now: Instant) -> Option<OpenError> {
        let mut known = lock(&self.0);
        let refusal = known.get_mut(&key.of_login()).filter(|refusal| refusal.is_about(key))?;
        if now < refusal.until {
            return Some(refusal.why.clone());
        }
        refusal.until = now + refusal.wait;
        None
    }

    /// Takes note of an attempt, and of why it has failed.
    pub(super) fn note(&self, key: &Key, error: Option<&OpenError>, now: Instant) {
        let mut known = lock(&self.0);
        let login = key.of_login();
        let before = known.get(&login);
        let Some(why) = error else {
            if before.is_some_and(|refusal| refusal.is_about(key)) {
                known.remove(&login);
            }
            return;
        };
        // There may be room at any moment.
        if !why.is_refusal() || why.is_server_full() {
            return;
        }
        let databases = match before.filter(|before| !before.why.refuses_any_database()) {
            _ if why.refuses_any_database() => 0..=u32::MAX,
            Some(before) if !before.is_about_only(key) => {
                *before.databases.start().min(&key.database())..=u32::MAX
            }
            _ if is_not_the_users(why) => key.database()..=key.database(),
            _ => key.database()..=u32::MAX,
        };
        let again = before.filter(|_| !is_busy(why));
        let wait = again.map_or(FIRST, |before| (before.wait * 2).min(LONGEST));
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(login, Refusal { why: why.clone(), databases, until: now + wait, wait });
    }

    /// Forgets that the login of this key was refused: the server has accepted it.
    pub(super) fn accepted(&self, key: &Key) {
        lock(&self.0)
            .retain(|known, refusal| !(refusal.why.refuses_any_database() && known.has_login_of(key)));
    }

    /// Forgets all: the login in the configuration has changed, or the server may have learned it.
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }
}

impl Pool {
    /// Remembers what the server refuses, if each attempt costs it memory.
    pub(super) fn note_answer<T>(&self, key: &Key, opened: &Result<T, OpenError>) {
        if self.server.is_over_device() {
            self.refusals.note(key, opened.as_ref().err(), Instant::now());
        }
    }

    /// Why the server has refused the last attempt with this key, over RDMA.
    pub(crate) fn last_refusal(&self, key: &Key) -> Option<OpenError> {
        self.refusals.last(key)
    }

    /// The server has accepted the login of this key.
    pub(crate) fn login_accepted(&self, key: &Key) {
        self.refusals.accepted(key);
    }

    /// The server may accept what it has refused.
    pub(crate) fn forget_refusals(&self) {
        self.refusals.clear();
    }
}

/// How long a refusal is the answer at first, and after many in a row.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Users that need no password accept any, so clients may have any number of logins.
const MOST: usize = 1000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use valkey_rdma_resp::Protocol;

    use super::*;
    use crate::upstream::identity::{Identity, Login};

    fn key(password: Option<&str>, database: u32) -> Key {
        let login = password.map(|password| Login { user: b"app".to_vec(), password: password.into() });
        Identity { login: login.map(Arc::new), database, protocol: Protocol::Resp2 }.key()
    }

    fn refused(text: &'static str) -> OpenError {
        OpenError::Refused(text.into())
    }

    const NOAUTH: &str = "-NOAUTH Authentication required.\r\n";
    const RANGE: &str = "-ERR DB index is out of range\r\n";

    #[test]
    fn what_is_refused_again_and_again_is_asked_ever_more_seldom() {
        let (refusals, begin, key) = (Refusals::default(), Instant::now(), key(None, 0));
        let asked = (0..100).filter(|second| {
            let now = begin + Duration::from_secs(*second);
            let is_asked = refusals.in_the_way(&key, now).is_none();
            if is_asked {
                refusals.note(&key, Some(&refused(NOAUTH)), now);
            }
            is_asked
        });
        assert_eq!(asked.collect::<Vec<_>>(), [0, 1, 3, 7, 15, 31, 61, 91]);
        assert!(refusals.last(&key).is_some());
        refusals.note(&key, None, begin);
        assert!(refusals.last(&key).is_none(), "it was accepted");
    }

    /// SELECT is refused meanwhile.
    #[test]
    fn what_a_script_holds_up_is_asked_again_soon() {
        let (refusals, begin, key) = (Refusals::default(), Instant::now(), key(None, 3));
        for second in 0..10 {
            let now = begin + FIRST * second;
            assert!(refusals.in_the_way(&key, now).is_none(), "after {second} s");
            let busy = refused("-BUSY The server is running a script.\r\n").of_choice();
            refusals.note(&key, Some(&busy), now);
        }
    }

    #[test]
    fn one_asks_when_it_is_time() {
        let (refusals, begin, key) = (Refusals::default(), Instant::now(), key(None, 0));
        refusals.note(&key, Some(&refused(NOAUTH)), begin);
        let later = begin + FIRST;
        assert!(refusals.in_the_way(&key, later).is_none());
        assert!(refusals.in_the_way(&key, later).is_some());
    }

    #[test]
    fn a_database_that_is_refused_leaves_lower_ones_and_other_logins_alone() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        refusals.note(&key(Some("one"), 99), Some(&refused(RANGE)), now);
        let is_refused = |password, database| refusals.in_the_way(&key(password, database), now).is_some();
        let of_one = [0, 98, 99, 100].map(|database| is_refused(Some("one"), database));
        assert_eq!(of_one, [false, false, true, true]);
        assert!(!is_refused(Some("other"), 99) && !is_refused(None, 99));
        refusals.note(&key(Some("one"), 5), None, now);
        assert!(is_refused(Some("one"), 99), "another database was accepted");
        refusals.note(&key(Some("one"), 50), Some(&refused(RANGE)), now);
        assert!(is_refused(Some("one"), 50) && !is_refused(Some("one"), 49));
    }

    /// As with the rule `db=0,7`.
    #[test]
    fn a_database_that_is_not_the_users_leaves_others_alone_until_there_are_two() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let not_its_own = refused("-NOPERM No permissions to access database\r\n");
        let are_refused =
            || [2, 3, 4, 7].map(|database| refusals.in_the_way(&key(Some("one"), database), now).is_some());
        for _ in 0..2 {
            refusals.note(&key(Some("one"), 3), Some(&not_its_own), now);
            assert_eq!(are_refused(), [false, true, false, false]);
        }
        refusals.note(&key(Some("one"), 7), None, now);
        assert_eq!(are_refused(), [false, true, false, false], "another one was accepted");
        refusals.note(&key(Some("one"), 4), Some(&not_its_own), now);
        assert_eq!(are_refused(), [false, true, true, true], "a client may choose ever new ones");
    }

    #[test]
    fn a_login_that_is_accepted_is_not_refused_any_more() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for (password, why) in [("one", NOAUTH), ("other", NOAUTH), ("third", RANGE)] {
            refusals.note(&key(Some(password), 3), Some(&refused(why)), now);
        }
        for password in ["one", "third"] {
            refusals.accepted(&key(Some(password), 0));
        }
        let is_refused = |password| refusals.in_the_way(&key(Some(password), 3), now).is_some();
        assert_eq!(["one", "other", "third"].map(is_refused), [false, true, true]);
    }

    #[test]
    fn what_may_change_at_any_moment_is_not_remembered() {
        let (refusals, now, key) = (Refusals::default(), Instant::now(), key(None, 0));
        let full = refused("-ERR max number of clients reached\r\n");
        for why in [full, OpenError::Unreachable("away".to_owned()), OpenError::Settings("full".to_owned())] {
            refusals.note(&key, Some(&why), now);
            assert!(refusals.last(&key).is_none(), "{why}");
        }
    }
}
