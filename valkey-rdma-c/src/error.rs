//! The last error of each thread.

use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps an error with its causes.
pub(crate) fn keep(error: &(dyn Error + 'static)) {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    // C's strings end at a zero.
    text.retain(|letter| letter != '\0');
    LAST.set(CString::new(text).unwrap_or_default());
}

/// Runs `look` on the last error of this thread.
pub(crate) fn last<T>(look: impl FnOnce(&CStr) -> T) -> T {
    LAST.with_borrow(|last| look(last))
}
