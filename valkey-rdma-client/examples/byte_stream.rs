//! RDMA as a stream of bytes, for programs that speak RESP themselves, or another library does.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use valkey_rdma_client::{Config, Dialer};
use valkey_rdma_mock::MockServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());

    let dialer = Dialer::new(url, &Config::default())?;
    let mut stream = BufReader::new(dialer.dial().await?);
    stream.write_all(b"SET greeting hello\r\nSTRLEN greeting\r\n").await?;
    for _ in 0..2 {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        println!("{}", line.trim_end());
    }
    Ok(())
}
