//! What the programs of valkey-rdma share.
//!
//! [`version!`] is the text of `--version`. [`parse`] reads the command line; [`generate`] writes man pages and shell completions, if it asks
//! for them.
//! [`complain`] reports an error in one line, made by [`error_chain`] or [`refusal`]. [`Style`] is for terminals.
//! [`password_in_environment`] and [`password_in_file`] look for a password; [`shown`] hides those in texts. [`Interrupt`] receives Ctrl-C.
//! [`ReservedFile`] finds out early whether results can be written.

#![forbid(unsafe_code)]

mod errors;
mod generate;
mod interrupt;
mod parse;
mod password;
mod reserved;
mod shown;
mod style;
mod version;

pub use errors::{complain, error_chain, refusal};
pub use generate::generate;
pub use interrupt::Interrupt;
pub use parse::parse;
pub use password::{PASSWORD_VARIABLES, password_in_environment, password_in_file};
pub use reserved::ReservedFile;
pub use shown::shown;
pub use style::Style;
#[doc(hidden)]
pub use version::text as version_text;
