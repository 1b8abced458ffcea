//! What the programs of valkey-rdma share.
//!
//! [`start`] reads the command line, by [`matches_of`], and starts logging; [`generate`] writes man pages and shell completions, if the
//! command line asks for them. [`version!`] is the text of `--version`. [`LoginArgs`] are the flags for a [`Login`] beside a URL, and [`ServerTlsArgs`] those for the
//! certificates of listeners. [`Certificate`] is what clients see of these.
//! [`runtime`] starts tokio. [`Signals`] receives signals; [`Interrupt`] is for programs that report what they
//! found until Ctrl-C.
//! [`print()`] writes to standard output. [`complain`] reports an error in one line, made by [`error_chain`] or [`refusal`]; [`fail`] and
//! [`refuse`] also choose the exit status. [`shown`] hides passwords, and [`printable`] escapes what
//! other programs wrote. [`Style`] is for terminals.
//! [`plot`] draws figures as SVG. [`ReservedFile`] finds out early whether results can be written.

#![forbid(unsafe_code)]

mod certificate;
mod errors;
mod generate;
mod interrupt;
mod log;
mod login;
mod matches;
mod numbers;
pub mod plot;
mod print;
mod printable;
mod reserved;
mod runtime;
mod server_tls;
mod shown;
mod signals;
mod start;
mod style;
mod version;

pub use certificate::Certificate;
pub use errors::{ShownError, complain, error_chain, fail, refusal, refuse};
pub use generate::generate;
pub use interrupt::Interrupt;
pub use log::log_to_stderr;
pub use login::{Login, LoginArgs, PASSWORD_VARIABLES, password_in_environment};
pub use matches::matches_of;
pub use numbers::{median, millis, plural};
pub use print::print;
pub use printable::printable;
pub use reserved::ReservedFile;
pub use runtime::runtime;
pub use server_tls::ServerTlsArgs;
pub use shown::shown;
pub use signals::Signals;
pub use start::start;
pub use style::Style;
pub use tracing_subscriber::filter::LevelFilter;
#[doc(hidden)]
pub use version::text as version_text;
