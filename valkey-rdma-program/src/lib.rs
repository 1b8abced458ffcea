//! What the programs of valkey-rdma share.
//!
//! [`version!`] is the text of `--version`. [`generate`] writes man pages and shell completions, if the command line asks for them.

#![forbid(unsafe_code)]

mod generate;
mod version;

pub use generate::generate;
#[doc(hidden)]
pub use version::text as version_text;
