//! The head of a run of `--evidence`: what is measured, and where.

use std::io::{self, Write};

use super::Style;
use super::table::shown_facts;
use crate::measure::About;

/// Writes the server and this machine, a line each.
pub(crate) fn write_evidence_head(out: &mut dyn Write, about: &About, style: Style) -> io::Result<()> {
    let server: Vec<String> = about
        .server
        .iter()
        .filter(|(name, _)| {
            ["valkey_version", "redis_version", "os", "io-threads", "maxmemory"].contains(name)
        })
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    writeln!(out, "{} {}", style.bold("server     "), server.join(", "))?;
    writeln!(out, "{} {}\n", style.bold("measured by"), shown_facts(&about.client).join(", "))
}
