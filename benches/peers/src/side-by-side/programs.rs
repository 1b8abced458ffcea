//! Where the programs are.

use std::path::PathBuf;

use clap::Args;

/// Where the programs are.
#[derive(Clone, Debug, Args)]
pub(crate) struct Programs {
    /// Folder with a real Valkey: valkey-server, valkey-benchmark, and valkey-rdma.so in the lab
    #[arg(long, value_name = "DIR")]
    pub(crate) valkey: PathBuf,

    /// Address that the servers listen on; in the lab that of the RDMA device
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) address: String,
}

impl Programs {
    /// One of our programs, beside this one.
    pub(crate) fn ours(&self, name: &str) -> PathBuf {
        std::env::current_exe().unwrap_or_default().with_file_name(name)
    }
}
