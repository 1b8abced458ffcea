//! TLS over any byte stream of this crate: over TCP, and over RDMA between peers that have agreed on it.
//!
//! [`ClientTls`] and [`ServerTls`] say which files hold the certificates. A [`TlsConnector`] and a [`TlsAcceptor`] read those files and
//! make a TLS connection over an [`AnyStream`](crate::AnyStream), which is an `AnyStream` again: nothing above it knows of TLS, and
//! nothing below it does either. The cryptography is that of [rustls](https://docs.rs/rustls) with ring; TLS 1.2 and 1.3.
//!
//! Without the cargo feature `tls`, settings can be made and compared, and each connect fails with [`TlsError::NotBuilt`].

mod admit;
pub(crate) mod error;
pub(crate) mod info;
mod options;

#[cfg(feature = "tls")]
mod accept;
#[cfg(feature = "tls")]
pub(crate) mod ciphers;
#[cfg(feature = "tls")]
mod connect;
#[cfg(feature = "tls")]
pub(crate) mod failure;
#[cfg(feature = "tls")]
mod files;
#[cfg(feature = "tls")]
mod verify;

#[cfg(not(feature = "tls"))]
mod absent;

#[cfg(not(feature = "tls"))]
pub use self::absent::{TlsAcceptor, TlsConnector};
#[cfg(feature = "tls")]
pub use self::accept::TlsAcceptor;
pub use self::admit::NotEncrypted;
#[cfg(feature = "tls")]
pub use self::connect::TlsConnector;
pub use self::error::{TlsError, TlsFile};
pub use self::info::TlsInfo;
pub use self::options::{ClientAuth, ClientTls, ServerTls, Verify};
