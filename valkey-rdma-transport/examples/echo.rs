//! The byte stream, as people who know TCP know it: no queue pairs, no keys, only bytes in order.
#![expect(clippy::print_stdout, reason = "it is what there is to see")]

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use common::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::{Config, DeviceKind, Listener, Stream};

async fn listen_side(mut listener: Listener) -> Result {
    let stream = listener.accept().await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let bytes = tokio::io::copy(&mut reader, &mut writer).await?;
    println!("listen: {bytes} bytes echoed, then end of file");
    Ok(())
}

async fn connect_side(device: DeviceKind, addr: SocketAddr) -> Result {
    let mut stream = Stream::connect(device, addr, &Config::default()).await?;
    stream.write_all(b"as if it were TCP").await?;
    let mut echo = [0; 17];
    stream.read_exact(&mut echo).await?;
    println!("connect: {:?} came back", String::from_utf8_lossy(&echo));

    // More than any buffer holds: writing and reading at once, or both sides would wait for each other.
    let sent = (0..8 << 20).map(|n: u32| (n % 251) as u8).collect::<Vec<_>>();
    let mut received = vec![0; sent.len()];
    let (mut reader, mut writer) = tokio::io::split(stream);
    tokio::try_join!(writer.write_all(&sent), reader.read_exact(&mut received))?;
    if sent != received {
        return Err("the bytes differ".into());
    }
    println!("connect: {} bytes came back as they were", received.len());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::exit(common::run_streams(listen_side, connect_side).await)
}
