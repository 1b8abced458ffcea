//! What the examples share: their command line, and running one side or both.
#![allow(dead_code, reason = "each example uses its part")]

use std::error::Error;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use valkey_rdma_transport::raw::{DeviceOptions, Listener};
use valkey_rdma_transport::{Config, DeviceKind, Listener as StreamListener};

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str =
    "usage: EXAMPLE                                         both sides here, on the emulated device
       EXAMPLE listen  -a ADDRESS -p PORT [-d DEVICE]  the side that waits; start it first
       EXAMPLE connect -a ADDRESS -p PORT [-d DEVICE]  the side that connects to it
DEVICE is verbs (RDMA adapters and soft-RoCE; the default) or emulated (RDMA in software, needs no adapter)";

/// Which sides run in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    Both,
    Listen,
    Connect,
}

/// What the command line asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    pub(crate) sides: Sides,
    pub(crate) device: DeviceKind,
    pub(crate) addr: SocketAddr,
}

/// Reads the command line. Without arguments, both sides run here on the emulated device.
pub(crate) fn args() -> Result<Args> {
    parse(std::env::args().skip(1)).map_err(|error| format!("{error}\n{USAGE}").into())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args> {
    let sides = match words.next().as_deref() {
        None => {
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            return Ok(Args { sides: Sides::Both, device: DeviceKind::Emulated, addr });
        }
        Some("listen") => Sides::Listen,
        Some("connect") => Sides::Connect,
        Some(other) => return Err(format!("unknown argument {other:?}").into()),
    };
    let (mut address, mut port, mut device) = (None, None, DeviceKind::Verbs);
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
        let wrong = |error: &dyn Error| format!("{option} {value}: {error}");
        match option.as_str() {
            "-a" => address = Some(value.parse::<IpAddr>().map_err(|error| wrong(&error))?),
            "-p" => port = Some(value.parse::<u16>().map_err(|error| wrong(&error))?),
            "-d" => device = value.parse::<DeviceKind>().map_err(|error| wrong(&error))?,
            _ => return Err(format!("unknown option {option:?}").into()),
        }
    }
    let (Some(address), Some(port)) = (address, port) else { return Err("-a and -p are needed".into()) };
    Ok(Args { sides, device, addr: SocketAddr::new(address, port) })
}

/// Prints an error with its causes, and makes the exit status.
#[expect(clippy::print_stderr, reason = "an example talks to its user")]
pub(crate) fn exit(result: Result) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("{error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  because: {error}");
        cause = error.source();
    }
    ExitCode::FAILURE
}

/// The options of all examples: up to 16 RDMA READs in flight.
pub(crate) fn options() -> DeviceOptions {
    DeviceOptions { read_depth: 16, ..DeviceOptions::default() }
}

/// Runs the sides that the command line asks for.
pub(crate) async fn run<L, C>(listen: fn(Listener) -> L, connect: fn(DeviceKind, SocketAddr) -> C) -> Result
where
    L: Future<Output = Result>,
    C: Future<Output = Result>,
{
    let bind = async |device, addr| {
        let listener = Listener::bind(device, addr, &options()).await?;
        let addr = listener.local_addr();
        Ok((listener, addr))
    };
    run_bound(bind, listen, connect).await
}

/// The same for sides that use the byte stream.
pub(crate) async fn run_streams<L, C>(
    listen: fn(StreamListener) -> L,
    connect: fn(DeviceKind, SocketAddr) -> C,
) -> Result
where
    L: Future<Output = Result>,
    C: Future<Output = Result>,
{
    let bind = async |device, addr| {
        let listener = StreamListener::bind(device, addr, &Config::default()).await?;
        let addr = listener.local_addr();
        Ok((listener, addr))
    };
    run_bound(bind, listen, connect).await
}

async fn run_bound<T, L, C>(
    bind: impl AsyncFnOnce(DeviceKind, SocketAddr) -> Result<(T, SocketAddr)>,
    listen: fn(T) -> L,
    connect: fn(DeviceKind, SocketAddr) -> C,
) -> Result
where
    L: Future<Output = Result>,
    C: Future<Output = Result>,
{
    let Args { sides, device, addr } = args()?;
    if sides == Sides::Connect {
        return connect(device, addr).await;
    }
    let (listener, addr) = bind(device, addr).await?;
    println!("listening on {addr}");
    if sides == Sides::Listen {
        return listen(listener).await;
    }
    tokio::try_join!(listen(listener), connect(device, addr))?;
    Ok(())
}
