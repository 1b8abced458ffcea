//! Names of Unix sockets in the file system: taking one, also from a process that left it behind, and giving it back.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::UnixListener;

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
