//! Devices that are removed under traffic, or go down. The proofs add their own device beside the lab's.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use valkey_rdma_program::error_chain;
use valkey_rdma_transport::device::{self as contract, CmEvent, DeviceConnection, DeviceOptions};
use valkey_rdma_transport::{DeviceKind, Listener, Stream, TransportError};

use crate::census::Census;
use crate::child::{self, Child};
use crate::outcome::{Outcome, bounded, ensure};
use crate::peers::{self, Bystander, EchoServer};

/// The proofs' own device, and the interface below it.
const DEVICE: &str = "rxeproof";
const INTERFACE: &str = "dproof";
const ADDRESS: &str = "10.0.9.1";

/// The line with which the other process reports that both of its connections carry traffic.
const IN_TRAFFIC: &str = "in traffic";

async fn add_device() -> Outcome {
    child::run(&["ip", "link", "add", INTERFACE, "type", "dummy"]).await?;
    child::run(&["ip", "address", "add", &format!("{ADDRESS}/24"), "dev", INTERFACE]).await?;
    child::run(&["ip", "link", "set", INTERFACE, "up"]).await?;
    child::run(&["rdma", "link", "add", DEVICE, "type", "rxe", "netdev", INTERFACE]).await
}

async fn remove_interface() -> Outcome {
    child::run(&["ip", "link", "delete", INTERFACE]).await
}

/// Removes a device that a process uses on both sides of a connection, and that this one uses.
pub(crate) async fn removed() -> Outcome {
    let server = EchoServer::start(peers::lab(), &peers::small()).await?;
    let bystander = Bystander::start(server.addr).await?;
    let before = Census::settled().await?;
    add_device().await?;
    let other = Child::start(&[], &["removed", &format!("{ADDRESS}:0")])?;
    other.wait_for(IN_TRAFFIC)?;
    child::run(&["rdma", "link", "delete", DEVICE]).await?;
    // That has waited until the other process let go of the device.
    let printed = other.finish()?;
    printed.iter().filter(|line| *line != IN_TRAFFIC).for_each(|line| println!("{line}"));
    bystander.goes_on().await?;
    remove_interface().await?;
    let after = before.objects_returned().await?;
    println!("{}", before.beside(&[("after", &after)]));
    println!("   the bystander made {} exchanges meanwhile", bystander.finish().await?);
    server.stop().await;
    Ok(())
}

/// The role: traffic over the doomed device and over the lab's. The first ends, the second does not.
pub(crate) async fn see_removal(doomed: SocketAddr) -> Outcome {
    let safe = EchoServer::start(peers::lab(), &peers::small()).await?;
    let bystander = Bystander::start(safe.addr).await?;
    // The kernel's own objects on the device go with it. This process has not opened it yet.
    let before = Census::settled().await?.without(DEVICE);
    let mut listener = Listener::bind(DeviceKind::Verbs, doomed, &peers::small()).await?;
    let addr = listener.local_addr();
    let connecting = tokio::spawn(async move { peers::connect(addr).await });
    let passive = bounded("a request", listener.accept()).await??;
    let active = bounded("a connection", connecting).await???;
    let accepting = tokio::spawn(end_of(listener));
    let (echoing, pumping) = (tokio::spawn(peers::echo(passive)), tokio::spawn(peers::pump(active)));
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    println!("{IN_TRAFFIC}");

    let client = Err(bounded("the client's end", pumping).await??);
    let server = bounded("the server's end", echoing).await??;
    let ends = [("client", &client), ("server", &server)];
    // Who hears of it first disconnects, which the other may hear first.
    ensure(ends.iter().any(|(_, end)| is_removal(end)), format!("neither saw the removal: {ends:?}"))?;
    for (who, end) in ends {
        if !is_removal(end) {
            peers::ensure_peer_left(who, end)?;
        }
        println!("   {who:<9} {}", end.as_ref().err().map_or("end of file".to_owned(), ToString::to_string));
    }
    bounded("the listener's end", accepting).await???;
    println!("   listener  {}, at every accept", TransportError::DeviceRemoved);
    bystander.goes_on().await?;
    let after = before.objects_returned().await?;
    println!("{}", before.beside(&[("after", &after)]));
    println!("   the other device's connection made {} exchanges meanwhile", bystander.finish().await?);
    Ok(())
}

fn is_removal(end: &io::Result<()>) -> bool {
    end.as_ref().is_err_and(|error| {
        error.kind() == io::ErrorKind::ConnectionReset
            && matches!(peers::typed(error), Some(TransportError::DeviceRemoved))
    })
}

/// Waits for a listener's end, which every accept must report.
async fn end_of(mut listener: Listener) -> Outcome {
    for time in ["first", "second"] {
        let outcome = listener.accept().await;
        let removed = matches!(outcome, Err(TransportError::DeviceRemoved));
        ensure(removed, format!("listener, {time} time: an unexpected end: {outcome:?}"))?;
    }
    Ok(())
}

/// Takes the port down under a connection, which gets the event and goes on, and before another, which is refused.
pub(crate) async fn down() -> Outcome {
    add_device().await?;
    let addr = format!("{ADDRESS}:6379");
    // In processes of their own, because a device used once stays open as long as the process.
    let mut said = Child::start(&[], &["port-down", &addr])?.finish()?;
    child::run(&["ip", "link", "set", INTERFACE, "down"]).await?;
    said.extend(Child::start(&[], &["refused", &addr])?.finish()?);
    child::run(&["rdma", "link", "delete", DEVICE]).await?;
    remove_interface().await?;
    said.iter().for_each(|line| println!("{line}"));
    let down = format!("port 1 of RDMA device {DEVICE} is DOWN");
    ensure(said.iter().any(|line| line.contains(&down)), format!("nothing says: {down}"))
}

/// The role: a connection at the level of the device contract, where the port's events can be seen.
pub(crate) async fn see_port_down(addr: SocketAddr) -> Outcome {
    let options = DeviceOptions::default();
    let mut listener = contract::listen(DeviceKind::Verbs, addr, &options).await?;
    let mut active = contract::open(DeviceKind::Verbs, addr, &options).await?;
    active.establish()?;
    let request = bounded("a request", poll_fn(|cx| listener.poll_request(cx))).await??;
    let mut passive = request.accept(&options)?;
    passive.establish()?;
    for side in [&mut active, &mut passive] {
        expect(side.as_mut(), CmEvent::Established).await?;
    }
    for (state, event) in [("down", CmEvent::PortDown), ("up", CmEvent::PortUp)] {
        child::run(&["ip", "link", "set", INTERFACE, state]).await?;
        for side in [&mut active, &mut passive] {
            expect(side.as_mut(), event).await?;
        }
        println!("   link {state}: both ends of the connection got the event");
    }
    drop(active);
    // The next event, so that nothing else had come before.
    expect(passive.as_mut(), CmEvent::Disconnected).await
}

async fn expect(side: &mut dyn DeviceConnection, event: CmEvent) -> Outcome {
    let found = bounded("an event", poll_fn(|cx| side.poll_cm_event(cx))).await??;
    ensure(found == event, format!("{found:?} came instead of {event:?}"))
}

/// The role: says why it cannot connect.
pub(crate) async fn be_refused(addr: SocketAddr) -> Outcome {
    let outcome = Stream::connect(DeviceKind::Verbs, addr, &peers::small()).await;
    let error = outcome.err().ok_or("connecting succeeded")?;
    println!("   {}", error_chain(&error));
    Ok(())
}
