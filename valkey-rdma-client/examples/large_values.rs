//! A value of 4 MiB: sent from registered memory, read into our own, and read in pieces.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::{BufferPool, Client, Command, cmd};
use valkey_rdma_mock::MockServer;

const LEN: usize = 4 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());
    let client = Client::connect(url).await?;

    // Over RDMA these bytes are sent from where they lie.
    let pool = BufferPool::new(1, LEN)?;
    let mut buffer = pool.take().await;
    buffer.fill(7);
    client.command(cmd!["SET", "chunk", buffer.freeze()]).await?;
    if let Some(stats) = client.connections()[0].stats {
        println!("sent without a copy: {}", stats.device.lent > LEN as u64 / 2);
    }

    let mut memory = vec![0; LEN];
    let length = client.get_into("chunk", &mut memory).await?;
    println!("read into our memory: {length:?}, right: {}", memory.iter().all(|byte| *byte == 7));

    let mut piece = vec![0; 1 << 20];
    let mut pieces = 0;
    if let Some(mut reader) = client.stream_reply(Command::new("GET").arg("chunk")).await? {
        while reader.read(&mut piece).await? > 0 {
            pieces += 1;
        }
    }
    println!("read in pieces: {}", pieces >= 4);
    Ok(())
}
