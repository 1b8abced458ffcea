//! RESP, the protocol of Valkey and Redis: both versions, both sides, no I/O.
//!
//! Every length that the peer sends is checked against a limit before memory is set aside for it, every byte is looked at
//! once however it arrives, and large strings are moved, never copied.
//!
//! | Side | In | Out |
//! |---|---|---|
//! | server | bytes -> [`Parser`] -> [`Command`] | [`Reply`] -> [`encode()`] -> [`Output`] -> bytes |
//! | client | bytes -> [`Decoder`] -> [`Value`] | [`put_header`] and the arguments |
//! | proxy | bytes -> [`CommandScanner`] -> the same bytes | bytes -> [`FrameScanner`] -> the same bytes |
//!
//! ```
//! use bytes::Buf;
//! use valkey_rdma_resp::{Output, Parser, Protocol, Reply, Room, encode};
//!
//! let mut parser = Parser::new(512 * 1024 * 1024);
//! match parser.room() {
//!     Room::Buffer(buffer) => buffer.extend_from_slice(b"*1\r\n$4\r\nPING\r\n"), // here a stream reads
//!     Room::Argument(_) => unreachable!("no large argument has begun"),
//! }
//! let command = parser.next_command(true)?.expect("a whole command has arrived");
//! assert!(command.is("ping"));
//!
//! let mut output = Output::default();
//! encode(&Reply::simple("PONG"), Protocol::Resp3, &mut output);
//! assert_eq!(output.chunk(), b"+PONG\r\n");
//! # Ok::<_, valkey_rdma_resp::CommandError>(())
//! ```

#![forbid(unsafe_code)]

mod command;
mod command_scanner;
mod convert;
mod decoder;
mod encode;
mod error;
mod frame_scanner;
mod inline;
#[doc(hidden)]
pub mod integer;
mod line;
mod output;
mod parser;
mod protocol;
mod reply;
mod value;

pub use command::Command;
#[doc(hidden)]
pub use command::{CommandName, without_arguments};
pub use command_scanner::{CommandScanner, words};
pub use convert::{Fields, FromValue, UnexpectedReply};
pub use decoder::{Decoder, Header};
#[doc(hidden)]
pub use encode::double;
pub use encode::encode;
#[doc(hidden)]
pub use error::TLS_REQUIRED;
pub use error::{CommandError, RespError, ServerError, ServerErrorKind};
pub use frame_scanner::{FrameScanner, Scanned};
pub use inline::inline_words;
#[doc(hidden)]
pub use inline::is_http;
pub use line::put_header;
pub use output::Output;
pub use parser::{Parser, Room};
pub use protocol::{MAX_DEPTH, MAX_LINE, MAX_MEMBERS, MAX_STRING, Protocol};
pub use reply::Reply;
pub use value::Value;

/// The README's example, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
