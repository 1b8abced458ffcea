//! Files that results are written to, checked to be writable before anything is measured.

use std::io;
use std::path::Path;

use valkey_rdma_program::ReservedFile;

use crate::measure::Found;
use crate::program::args::{Args, Instead};
use crate::report::{hdr, html, json, plot, write_file};

/// The files that the user wants.
pub(crate) struct Outputs<'a> {
    args: &'a Args,
    /// Keeps no empty file.
    reserved: Vec<ReservedFile>,
}

impl<'a> Outputs<'a> {
    /// Makes sure that every file can be written.
    pub(crate) fn new(args: &'a Args) -> Result<Outputs<'a>, Instead> {
        if let Some(path) = &args.plot
            && path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg"))
        {
            return Err(Instead::Refuse(format!("--plot draws SVG, so {} must end in .svg", path.display())));
        }
        let (mut reserved, mut taken) = (Vec::new(), Vec::new());
        let files = [
            ("--json", args.json.clone()),
            ("--plot", args.plot.clone()),
            ("--html", args.html.clone()),
            ("--hdr", args.hdr.clone()),
        ];
        for (flag, path) in files {
            let Some(path) = path else { continue };
            if path.as_os_str() == "-" {
                let reason =
                    "results go to a file, and - would be its name: write /dev/stdout for standard output";
                return Err(Instead::Refuse(format!("{flag} -: {reason}")));
            }
            let whole = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
            if let Some((other, _)) = taken.iter().find(|(_, taken)| *taken == whole) {
                let reason = format!("{other} and {flag} would write the same file: {}", path.display());
                return Err(Instead::Refuse(reason));
            }
            taken.push((flag, whole));
            // The tests give --hdr its files.
            if flag != "--hdr" {
                reserved.push(reserve(flag, &path)?);
            }
        }
        Ok(Outputs { args, reserved })
    }

    /// Makes sure that the distribution of each test can be written. The tests have these titles, and run once each or at each point of
    /// a matrix.
    pub(crate) fn reserve_distributions(&mut self, titles: &[&str]) -> Result<(), Instead> {
        let Some(path) = &self.args.hdr else { return Ok(()) };
        let times = self.args.matrix.as_ref().map_or(1, |matrix| matrix.combinations().len());
        for (file, service) in hdr::paths(path, &titles.repeat(times)) {
            self.reserved.push(reserve("--hdr", &file)?);
            if self.args.rps > 0.0 {
                self.reserved.push(reserve("--hdr", &service)?);
            }
        }
        Ok(())
    }

    /// Writes all files.
    pub(crate) fn write(&self, found: &Found) -> io::Result<()> {
        if let Some(path) = &self.args.json {
            write_file(path, |out| json::write(out, found))?;
        }
        if let Some(path) = &self.args.hdr {
            hdr::write(path, found)?;
        }
        if let Some(path) = &self.args.plot {
            write_file(path, |out| out.write_all(plot(found).as_bytes()))?;
        }
        if let Some(path) = &self.args.html {
            let page = html::page(found);
            write_file(path, |out| out.write_all(page.as_bytes()))?;
        }
        Ok(())
    }
}

pub(super) fn reserve(flag: &str, path: &Path) -> Result<ReservedFile, Instead> {
    let reserved = ReservedFile::new(path);
    reserved
        .map_err(|error| Instead::Refuse(format!("{flag}: {} cannot be written: {error}", path.display())))
}
