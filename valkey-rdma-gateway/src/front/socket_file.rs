//! [`SocketFile`]: the file of a Unix socket, which other processes may remove or replace.

use std::fs::{self, FileType};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The file that this process has bound a socket to. Another process may have put its own in place of it.
#[derive(Clone)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode. The system does not use an inode again while the socket is open.
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens on `path`. A file of a process that has ended is replaced.
    pub(crate) async fn bind(path: &Path) -> io::Result<(UnixListener, Self)> {
        remove_stale(path).await?;
        let listener = UnixListener::bind(path)?;
        Ok((listener, Self { path: path.to_owned(), identity: identity(path)? }))
    }

    /// Whether clients that connect to the path reach this process.
    pub(crate) fn is_in_place(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }

    /// Removes the file, unless it is gone, or that of another process. The socket must still be open.
    pub(crate) fn remove(&self) {
        if self.is_in_place() {
            // Gone already if someone removed it meanwhile.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Removes a socket file that no process listens on any more. The error says what else is in the way.
async fn remove_stale(path: &Path) -> io::Result<()> {
    // If the path cannot be read, the system says why when a socket is bound to it.
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let in_the_way = |text: String| Err(io::Error::new(ErrorKind::AddrInUse, text));
    if !found.file_type().is_socket() {
        let what = name(found.file_type());
        return in_the_way(format!("{what} is there, not a socket: remove it, or use another path"));
    }
    let connected = UnixStream::connect(path).await;
    match connected.map_err(|error| (error.kind(), error)) {
        Ok(_) => in_the_way("another process listens there: stop it, or use another path".to_owned()),
        // Reset: the other process ended just now, and may have removed its file.
        Err((ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::NotFound, _)) => {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => in_the_way(format!(
                    "no process listens on this socket file, and it cannot be removed: {error}"
                )),
                _ => Ok(()),
            }
        }
        Err((_, error)) => in_the_way(format!(
            "a socket file of user id {} is there, and whether a process listens on it cannot be found out: {error}; if none does, \
             remove the file",
            found.uid()
        )),
    }
}

fn name(file: FileType) -> &'static str {
    match file {
        file if file.is_dir() => "a directory",
        file if file.is_symlink() => "a symbolic link",
        _ => "a file",
    }
}
