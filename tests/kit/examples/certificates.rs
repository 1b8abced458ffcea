//! Writes certificates for this machine into a folder: `ca.crt`, and `server.crt` and `server.key` from that issuer. With
//! `VALKEY_RDMA_MOCK_TLS=FOLDER SSL_CERT_FILE=FOLDER/ca.crt`, the mocks of a test encrypt and their clients trust them.
//!
//! usage: certificates FOLDER

use std::fs;
use std::path::Path;

use valkey_rdma_testkit::Authority;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).expect("usage: certificates FOLDER");
    let folder = Path::new(&folder);
    let issuer = Authority::new("Issuer of tests");
    let pair = issuer.issue(&["127.0.0.1", "localhost", "::1"]);
    fs::create_dir_all(folder)?;
    for (made, name) in [(issuer.ca(), "ca.crt"), (pair.cert, "server.crt"), (pair.key, "server.key")] {
        fs::copy(made, folder.join(name))?;
    }
    Ok(())
}
