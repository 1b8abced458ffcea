//! Files that a program writes at its end.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A file that can be written, as was seen before the work whose results it gets. If it did not exist and is still empty when
/// this is dropped, it is removed.
#[derive(Debug)]
#[must_use = "an empty file is removed when this is dropped"]
pub struct ReservedFile {
    path: PathBuf,
    created: bool,
}

impl ReservedFile {
    /// Creates the file, or finds that it can be written. What an older one holds stays.
    ///
    /// # Errors
    /// That of opening it.
    pub fn new(path: &Path) -> io::Result<Self> {
        let created = !path.exists();
        OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { path: path.to_owned(), created })
    }
}

impl Drop for ReservedFile {
    fn drop(&mut self) {
        if self.created && fs::metadata(&self.path).is_ok_and(|file| file.len() == 0) {
            // A program that ends with an error has that to report, and no second one.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_stays_empty_is_removed_and_others_stay() {
        let path = std::env::temp_dir().join(format!("valkey-rdma-reserved-{}", std::process::id()));
        drop(ReservedFile::new(&path).expect("it can be written"));
        assert!(!path.exists());

        let reserved = ReservedFile::new(&path).expect("it can be written");
        fs::write(&path, "results").expect("written");
        drop(reserved);
        drop(ReservedFile::new(&path).expect("it can be written"));
        assert_eq!(fs::read_to_string(&path).expect("kept"), "results");

        fs::write(&path, "").expect("written");
        drop(ReservedFile::new(&path).expect("it can be written"));
        assert!(path.exists(), "it was there before");
        fs::remove_file(&path).expect("removed");
        assert!(ReservedFile::new(Path::new("/nowhere/at/all")).is_err());
    }
}
