//! The fabric between machines: SEND, WRITE, READ and WRITE with immediate over queue pairs, and TCP beside it.
//!
//! [`Service`] answers; [`check`] connects to one, compares what arrives with what was sent, and measures. Both talk over a
//! TCP connection about what comes next. [`Node`] lets a group of machines check each other, pair by pair.

mod compare;
mod control;
mod drive;
mod error;
mod figures;
mod lane;
mod leader;
mod matrix;
mod mesh;
mod message;
mod options;
mod plot;
mod quota;
mod respond;
mod run;
mod service;
mod session;
mod size;
#[cfg_attr(
    not(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86", target_arch = "x86_64")),
    path = "fabric/system_calls/uncounted.rs"
)]
mod system_calls;
mod table;
mod tcp;
mod work;

pub use self::error::FabricError;
pub use self::figures::{Direction, Figures, Found, Latency, Rate, Row, Side};
pub use self::leader::check;
pub use self::matrix::{Link, Matrix};
pub use self::mesh::Node;
pub use self::options::{Options, Progress};
pub use self::plot::draw;
pub use self::run::{Device, Operation, Run};
pub use self::service::{Ended, Service};
pub use self::size::{BadSize, parse_size, size_text};
pub use self::system_calls::count_system_calls;
pub use self::table::table;
