//! [`Folder`]: a folder for the files of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder of its own, which goes away with this value.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one, with `name` in its path.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("valkey-rdma-{name}-{}-{count}", std::process::id()));
        // Of a process before, with the same id, which was killed.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder of its own");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, as an argument of a program.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// What a file in it has.
    ///
    /// # Panics
    /// If there is no such file, or it is not UTF-8.
    pub fn read(&self, name: &str) -> String {
        let path = self.0.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind harms no other test.
        let _ = fs::remove_dir_all(&self.0);
    }
}
