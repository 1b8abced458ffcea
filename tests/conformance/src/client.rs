//! Cases about clients: a server whose device misbehaves by a script, and a witness of what the client does.

mod cases;
mod context;
mod run;
mod subject;
mod witness;

pub use cases::CASES;
pub use context::Context;
pub use run::{Options, run};
pub use subject::{Ended, Running, Subject};
