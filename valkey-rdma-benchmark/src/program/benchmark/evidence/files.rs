//! The two files of a run: all figures as JSON, and a page for people beside it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use valkey_rdma_program::ReservedFile;

use crate::measure::Evidence;
use crate::program::args::Instead;
use crate::program::output::reserve;
use crate::report::{html, json, write_file};

pub(super) struct Files {
    json: PathBuf,
    html: PathBuf,
    /// Keeps no empty file.
    _reserved: [ReservedFile; 2],
}

impl Files {
    /// Makes sure that both can be written.
    pub(super) fn new(path: &Path) -> Result<Files, Instead> {
        let (json, html) = (path.to_owned(), path.with_extension("html"));
        let reserved = [reserve("--evidence", &json)?, reserve("--evidence", &html)?];
        Ok(Files { json, html, _reserved: reserved })
    }

    /// Writes both.
    pub(super) fn write(&self, evidence: &Evidence) -> io::Result<()> {
        replace(&self.json, |out| json::write_evidence(out, evidence))?;
        let page = html::evidence(evidence);
        replace(&self.html, |out| out.write_all(page.as_bytes()))
    }
}

/// Writes a file beside the old one, then in its place: a second Ctrl-C, which ends the process, leaves one of them whole.
fn replace(path: &Path, write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".part");
    write_file(Path::new(&next), write)?;
    std::fs::rename(&next, path)
}

impl fmt::Display for Files {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, and {} to look at", self.json.display(), self.html.display())
    }
}
