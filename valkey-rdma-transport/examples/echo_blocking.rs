//! The byte stream without async: any function that takes `Read` and `Write` runs on it.
#![expect(clippy::print_stdout, reason = "it is what there is to see")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use common::{Args, Result, Sides, args};
use valkey_rdma_transport::blocking::{Listener, Stream};
use valkey_rdma_transport::{Config, DeviceKind};

fn listen_side(listener: &Listener) -> Result {
    let mut stream = listener.accept()?;
    let bytes = std::io::copy(&mut stream.try_clone()?, &mut stream)?;
    println!("listen: {bytes} bytes echoed, then end of file");
    Ok(())
}

fn connect_side(device: DeviceKind, addr: SocketAddr) -> Result {
    let mut stream = Stream::connect(device, addr, &Config::default())?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"as if it were TCP")?;
    let mut echo = [0; 17];
    stream.read_exact(&mut echo)?;
    println!("connect: {:?} came back", String::from_utf8_lossy(&echo));

    // One thread writes while the other reads.
    let sent = (0..8 << 20).map(|n: u32| (n % 251) as u8).collect::<Vec<_>>();
    let mut received = vec![0; sent.len()];
    let mut writing = stream.try_clone()?;
    thread::scope(|scope| {
        let writer = scope.spawn(|| writing.write_all(&sent));
        stream.read_exact(&mut received)?;
        writer
            .join()
            .map_err(|_| "the writer has panicked")?
            .map_err(Box::<dyn std::error::Error + Send + Sync>::from)
    })?;
    if sent != received {
        return Err("the bytes differ".into());
    }
    println!("connect: {} bytes came back as they were", received.len());
    stream.shutdown(Shutdown::Both)?;
    Ok(())
}

fn run() -> Result {
    let Args { sides, device, addr } = args()?;
    if sides == Sides::Connect {
        return connect_side(device, addr);
    }
    let listener = Listener::bind(device, addr, &Config::default())?;
    let addr = listener.local_addr();
    println!("listening on {addr}");
    if sides == Sides::Listen {
        return listen_side(&listener);
    }
    thread::scope(|scope| {
        let listening = scope.spawn(|| listen_side(&listener));
        connect_side(device, addr)?;
        listening.join().map_err(|_| "the listening side has panicked")?
    })
}

fn main() -> ExitCode {
    common::exit(run())
}
