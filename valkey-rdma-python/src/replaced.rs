//! [`Replaced`]: a value of the thread that holds for a while.

use std::cell::Cell;
use std::mem;
use std::thread::LocalKey;

/// While it exists, a value of this thread is another one.
pub(crate) struct Replaced<T: Default + 'static> {
    key: &'static LocalKey<Cell<T>>,
    before: T,
}

impl<T: Default> Replaced<T> {
    pub(crate) fn new(key: &'static LocalKey<Cell<T>>, now: T) -> Self {
        Self { key, before: key.replace(now) }
    }
}

impl<T: Default> Drop for Replaced<T> {
    fn drop(&mut self) {
        self.key.set(mem::take(&mut self.before));
    }
}
