//! The texts that the library keeps for each thread.

use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CString, c_char};
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
    let text = CString::new(text).unwrap_or_default();
    // A thread that ends keeps nothing.
    let _ended = place.try_with(|kept| kept.replace(text));
}

/// A text of this thread: an empty one in a thread that ends, whose destructors may still call the library.
pub(crate) fn kept(place: &'static Kept) -> *const c_char {
    place.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(c"".as_ptr())
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
