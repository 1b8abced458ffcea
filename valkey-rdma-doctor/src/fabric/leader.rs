//! The end that leads: connects to a service, compares, measures.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_transport::Polling;
use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::address::source_towards;
use valkey_rdma_transport::raw::QueuePair;

use super::compare;
use super::control::Control;
use super::drive::drive;
use super::error::FabricError;
use super::figures::{Direction, Found, Row};
use super::lane::Lane;
use super::message::{Message, VERSION};
use super::options::Options;
use super::options::Progress;
use super::respond::respond;
use super::run::{Operation, Run};
use super::session::Session;
use super::size::size_text;

/// Checks the fabric between this machine and a [`Service`](super::Service). What is found is added to `found` as it comes, so
/// that it stays if the check ends early.
///
/// # Errors
/// [`FabricError`] if the check could not be completed. Buffers that differ are not an error, but [`Found::differences`].
///
/// Cancel safety: dropping the future disconnects.
pub async fn check(
    addr: SocketAddr,
    options: &Options,
    found: &mut Found,
    progress: Progress<'_>,
) -> Result<(), FabricError> {
    let mut session = connect(addr, options, found).await?;
    let runs = runs(options, !session.tcp.is_empty());
    let ways: &[bool] = if options.both_ways { &[false, true] } else { &[false] };
    let comparisons = options.sizes.len() * session.lanes.len() * ways.len();
    let steps = comparisons + runs.len();
    let mut step = 0;

    let mut seed = 1;
    for &size in &options.sizes {
        for lane in 0..session.lanes.len() {
            for &reverse in ways {
                progress(step, steps, &format!("comparing {}", size_text(size)));
                let differences = compare_once(&mut session, lane, size, seed, reverse).await?;
                let way = if reverse { "from there: " } else { "" };
                found.differences.extend(differences.into_iter().map(|text| format!("{way}{text}")));
                found.compared += 3;
                (step, seed) = (step + 1, seed + 3);
            }
        }
    }
    for (direction, run) in runs {
        progress(step, steps, &run.to_string());
        let reverse = direction == Direction::Back;
        session.control.send(&Message::Run { run, reverse }).await?;
        let figures = if reverse {
            respond(&mut session, run).await?;
            match session.control.answer().await? {
                Message::Measured { figures } => figures,
                other => return Err(session.control.unexpected(&other)),
            }
        } else {
            drive(&mut session, run).await?
        };
        found.rows.push(Row { direction, run, figures });
        step += 1;
    }
    progress(steps, steps, "done");
    Ok(())
}

async fn compare_once(
    session: &mut Session,
    lane: usize,
    size: u32,
    seed: u64,
    reverse: bool,
) -> Result<Vec<String>, FabricError> {
    session.control.send(&Message::Compare { lane, size, seed, reverse }).await?;
    if !reverse {
        return compare::send(session, lane, size, seed).await;
    }
    // The peer adds what it read back to what was found here, and says both.
    compare::receive(session, lane, size, seed, false).await?;
    match session.control.answer().await? {
        Message::Compared { differences } => Ok(differences),
        other => Err(session.control.unexpected(&other)),
    }
}

/// Everything to measure, in order.
fn runs(options: &Options, tcp: bool) -> Vec<(Direction, Run)> {
    let ways: &[Direction] =
        if options.both_ways { &[Direction::There, Direction::Back] } else { &[Direction::There] };
    let millis = u64::try_from(options.time.as_millis()).unwrap_or(u64::MAX);
    let mut runs = Vec::new();
    for &size in &options.sizes {
        let mut add = |direction, operation, busy| {
            for stream in [false, true] {
                runs.push((direction, Run { operation, size, busy, stream, millis }));
            }
        };
        for &direction in ways {
            for &operation in &options.operations {
                for &polling in &options.polling {
                    add(direction, operation, polling == Polling::Busy);
                }
            }
            if tcp {
                add(direction, Operation::Tcp, false);
            }
        }
    }
    runs
}

/// Connects in every way that is wanted.
async fn connect(addr: SocketAddr, options: &Options, found: &mut Found) -> Result<Session, FabricError> {
    let mut control = dial(addr, options.patience).await?;
    control
        .send(&Message::Hello {
            doctor: VERSION,
            device: options.kind.to_string(),
            queue_pairs: options.queue_pairs,
            longest: options.longest(),
            patience_ms: u64::try_from(options.patience.as_millis()).unwrap_or(u64::MAX),
        })
        .await?;
    let (rdma, tcp) = match control.answer().await? {
        Message::Welcome { rdma, tcp } => (from_here(rdma, addr), from_here(tcp, addr)),
        Message::Refuse { reason } => return Err(FabricError::Refused { peer: addr, reason }),
        other => return Err(control.unexpected(&other)),
    };
    let mut session = Session { control, lanes: Vec::new(), tcp: Vec::new() };
    for _ in 0..options.queue_pairs {
        session.add_lane(connect_lane(rdma, options)).await?;
    }
    let limit = session.lanes[0].max_message();
    if options.longest() > limit {
        return Err(FabricError::Size { device: session.device().name, asked: options.longest(), limit });
    }
    if options.tcp {
        match connect_tcp(tcp, options).await {
            Ok(streams) => session.tcp = streams,
            Err(error) => found.notes.push(format!(
                "TCP is not measured: {tcp} cannot be connected to ({error}); a firewall between us lets only some ports pass"
            )),
        }
    }
    session.control.now("exchanging keys");
    // The other end has accepted everything when it sends its own.
    let (theirs, _) = session.take_memory().await?;
    session.send_memory().await?;
    found.devices = Some((session.device(), theirs));
    Ok(session)
}

/// The peer's address `of_peer` as this machine reaches it, which reaches the peer at `addr`. If it is link-local, the peer has named its own
/// interface.
fn from_here(of_peer: SocketAddr, addr: SocketAddr) -> SocketAddr {
    let mut here = source_towards(of_peer.ip(), addr);
    here.set_port(of_peer.port());
    here
}

/// Opens the control connection.
pub(super) async fn dial(addr: SocketAddr, patience: Duration) -> Result<Control, FabricError> {
    let stream = timeout(patience, TcpStream::connect(addr)).await;
    let stream = stream.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    stream
        .and_then(|stream| Control::new(stream, addr, patience))
        .map_err(|source| FabricError::Connect { addr, source })
}

async fn connect_lane(addr: SocketAddr, options: &Options) -> Result<Lane, TransportError> {
    let pair = QueuePair::open(options.kind, addr, &options.device_options()).await?;
    Lane::establish(pair, options.longest()).await
}

async fn connect_tcp(addr: SocketAddr, options: &Options) -> std::io::Result<Vec<TcpStream>> {
    let mut streams = Vec::new();
    for _ in 0..options.queue_pairs {
        let stream = timeout(options.patience, TcpStream::connect(addr)).await??;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_of_the_peer_is_reached_on_the_interface_of_this_machine() {
        for (of_peer, addr, expected) in [
            ("[fe80::1%2]:8", "[fe80::1%7]:7000", "[fe80::1%7]:8"),
            ("[fd00::1]:8", "[fd00::1]:7000", "[fd00::1]:8"),
            ("10.0.0.1:8", "10.0.0.1:7000", "10.0.0.1:8"),
        ] {
            let here = from_here(of_peer.parse().unwrap(), addr.parse().unwrap());
            assert_eq!(here.to_string(), expected);
        }
    }
}
