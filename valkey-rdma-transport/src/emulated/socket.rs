//! The link between processes: a TCP or Unix socket that carries what the two sides ask and answer.
//!
//! # The task
//! One task per connection, the [`Driver`](driver::Driver), owns the socket. An adapter writes a peer's bytes into
//! memory, acknowledges them and notices a dead peer while the program does something else; without a task of its
//! own, a connection that no task polls would do none of that, and its peer would see a receiver that hangs where
//! hardware has none. The task does exactly the adapter's part: it knows [`Session`](session::Session), never
//! `Stream`. A session is the protocol below without I/O.
//!
//! # Frames
//! A frame is a header of 32 bytes, integers big-endian, unused fields zero; only requests have bytes after it.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 3 | zero |
//! | 4 | 4 | `len`: bytes that follow, at most 2^30 |
//! | 8 | 8 | `sequence` of the request; in an answer, of the request that is answered |
//! | 16 | 8 | `addr` |
//! | 24 | 4 | `key` |
//! | 28 | 4 | `value` |
//!
//! | kind | name | fields | meaning |
//! |---|---|---|---|
//! | 1 | `Connect` | `sequence` magic, `addr` version 2, `key` port, `value` terms | active end asks |
//! | 2 | `Accept` | `value` terms | passive end agrees; its requests may follow |
//! | 3 | `Reject` | `value` reason | passive end does not; nothing follows |
//! | 4 | `Ready` | | active end has seen the acceptance; its requests may follow |
//! | 5 | `Disconnect` | | the queue pair is in error; nothing follows |
//! | 16 | `Request` | `len`, `sequence` | SEND |
//! | 17 | `Request` | `len`, `sequence`, `addr`, `key` | RDMA WRITE |
//! | 18 | `Request` | `len`, `sequence`, `addr`, `key`, `value` immediate | RDMA WRITE with immediate |
//! | 19 | `Request` | `len`, `sequence`, `addr`, `key` | RDMA READ; no bytes follow |
//! | 20 | `Request` | `len`, `sequence`, `value` immediate | SEND with immediate |
//! | 32 | `Done` | `sequence` | carried out, and all before it |
//! | 33 | `NotReady` | `sequence`, `value` timer in microseconds | no receive posted; this one and those behind it are dropped |
//! | 34 | `Denied` | `sequence`, `value` status | may not be carried out; the responder is in error |
//! | 35 | `Resume` | | receives are posted: ask again, from the dropped one on |
//! | 36 | `Probe` | | are you there? |
//! | 37 | `Alive` | | yes |
//! | 38 | `Bytes` | `len`, `sequence` | what a READ asked for; all before it is carried out |
//!
//! Terms are the RNR retry count in the lowest byte, and the read depth in the next.
//! The first frame is `Connect`, answered by `Accept` or `Reject`; `Ready` follows. Requests count from 0 in either
//! direction. The end of the socket without `Disconnect`, as when a process is killed, is a disconnect too: that is
//! what the kernel's connection manager makes of it. So is any byte that breaks these rules. Nothing is allocated
//! for what a frame announces: bytes go into registered memory, after the responder has admitted them, or nowhere.

mod connect;
mod driver;
mod frame;
mod listener;
mod session;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fmt, io};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;

use crate::error::TransportError;

pub(super) use connect::connect;
pub(super) use listener::{SocketListener, SocketRequest};
pub(super) use session::SocketLink;

/// A connected socket of either kind.
trait Socket: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static> Socket for T {}

/// The Unix socket that stands for a port: in its directory the port is the whole name.
fn socket_path(directory: &Path, port: u16) -> PathBuf {
    directory.join(port.to_string())
}

/// Turns an OS error into the [`TransportError`] of the `call` that failed.
fn failed(call: &'static str, source: io::Error) -> TransportError {
    TransportError::of_call(call, source)
}

/// Listens on a Unix socket of this name, in place of one that a process left behind.
///
/// The socket listens before it gets its name, so that a name that refuses connections is one left behind.
pub(super) fn claim(path: PathBuf) -> io::Result<(UnixListener, SocketFile)> {
    static CLAIMS: AtomicU32 = AtomicU32::new(0);
    let nonce = format!(".{}-{}", std::process::id(), CLAIMS.fetch_add(1, Ordering::Relaxed));
    let nameless = path.with_file_name(nonce);
    let listener = UnixListener::bind(&nameless)?;
    let named = match std::fs::hard_link(&nameless, &path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            discard_dead(&path).and_then(|()| std::fs::hard_link(&nameless, &path))
        }
        outcome => outcome,
    };
    std::fs::remove_file(&nameless)?;
    match named {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(io::ErrorKind::AddrInUse.into()),
        outcome => outcome.and_then(|()| Ok((listener, SocketFile::new(path)?))),
    }
}

/// Removes a name without a listener.
fn discard_dead(path: &Path) -> io::Result<()> {
    let found = identity(path)?;
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        _ => return Err(io::ErrorKind::AddrInUse.into()),
    }
    // Somebody else may have found it dead too, and be faster: then it is theirs that would go.
    if identity(path)? == found { std::fs::remove_file(path) } else { Err(io::ErrorKind::AddrInUse.into()) }
}

/// A socket's name in the file system, which is taken away with it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode, by which another listener's socket of the same name is distinguished from ours.
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: PathBuf) -> io::Result<Self> {
        let identity = identity(&path)?;
        Ok(Self { path, identity })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a socket is left behind");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortages_of_descriptors_of_the_process_and_of_the_machine_are_different_errors() {
        let error = |number| failed("connect", io::Error::from_raw_os_error(number));
        let (process, machine) = (error(24), error(23));
        assert!(matches!(process, TransportError::Descriptors { limit: Some(_), .. }), "{process:?}");
        assert!(matches!(machine, TransportError::SystemDescriptors { .. }), "{machine:?}");
    }
}
