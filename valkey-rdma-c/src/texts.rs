//! The texts that the library keeps for each thread.

use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString};
use std::thread::LocalKey;

thread_local! {
    /// The last error.
    pub(crate) static ERROR: RefCell<CString> = RefCell::default();
    /// What the last connect connected to.
    pub(crate) static CONNECTION: RefCell<CString> = RefCell::default();
}

type Kept = LocalKey<RefCell<CString>>;

pub(crate) fn keep(place: &'static Kept, mut text: String) {
    // C's strings end at a zero.
    text.retain(|letter| letter != '\0');
    place.set(CString::new(text).unwrap_or_default());
}

/// Runs `look` on a text of this thread.
pub(crate) fn kept<T>(place: &'static Kept, look: impl FnOnce(&CStr) -> T) -> T {
    place.with_borrow(|text| look(text))
}

/// An error with its causes.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
