//! Whether keys are written before a test reads them.

/// What is written before a test that reads keys (`--populate`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Populate {
    /// Nothing: the keys must exist
    #[default]
    None,
    /// The keys that do not exist
    Missing,
    /// All keys, over what they hold
    All,
}
