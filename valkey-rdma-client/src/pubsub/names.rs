//! [`Names`]: what `subscribe` takes, and what the compiler says of anything else.

use bytes::Bytes;

/// Names of channels, or patterns: text or bytes in an array, a vector or another iterator.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of names",
    note = "give a list, also of one name: `[\"news\"]`"
)]
pub trait Names {
    /// Returns the names.
    fn into_names(self) -> Vec<Bytes>;
}

// What the compiler would ask for instead is of no use to the caller.
#[diagnostic::do_not_recommend]
impl<I: IntoIterator<Item: AsRef<[u8]>>> Names for I {
    fn into_names(self) -> Vec<Bytes> {
        self.into_iter().map(|name| Bytes::copy_from_slice(name.as_ref())).collect()
    }
}
