//! Where the programs run.

use clap::ValueEnum;

/// Where the programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Place {
    /// In the lab, on kernel verbs.
    Lab,
    /// On any machine: TCP over loopback and the emulated device.
    Host,
}
