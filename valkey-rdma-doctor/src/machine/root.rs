//! The files that facts are read from.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder that has `/sys`, `/proc`, `/dev` and `/etc` below it: `/`, or a copy of what matters of another machine.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// The files of this machine.
    pub fn of_this_machine() -> Self {
        Self("/".into())
    }

    /// The files below `folder`.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The folder itself.
    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// Where a file of the machine is. `path` begins with a slash.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// A file's text without white space at its ends. `None` if it cannot be read, which sysfs uses for "not known".
    pub(super) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    /// As [`read`](Self::read); an empty file is as good as none.
    pub(super) fn value(&self, path: &str) -> Option<String> {
        self.read(path).filter(|text| !text.is_empty())
    }

    /// The names in a folder, numbers in the order of their values.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>();
        names.sort_by_key(|name| (name.parse::<u64>().unwrap_or(u64::MAX), name.clone()));
        names
    }

    /// The last part of what a symbolic link leads to, such as the driver's name for `device/driver`.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        target.file_name().map(|name| name.to_string_lossy().into_owned())
    }
}
