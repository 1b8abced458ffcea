//! Writes whole files, and names the file in every error.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a whole file.
pub(crate) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut out = BufWriter::new(File::create(path).map_err(named)?);
    write(&mut out).and_then(|()| out.flush()).map_err(named)
}
