//! A peer that is killed under traffic.

use valkey_rdma_transport::{DeviceKind, Listener};

use crate::census::Census;
use crate::child::Child;
use crate::outcome::{Outcome, bounded, ensure};
use crate::peers::{self, Bystander, EchoServer};

pub(crate) async fn prove() -> Outcome {
    let server = EchoServer::start(peers::lab(), &peers::small()).await?;
    let mut listener = Listener::bind(DeviceKind::Verbs, peers::lab(), &peers::small()).await?;
    let bystander = Bystander::start(server.addr).await?;
    // Once for what stays from first use.
    for round in 0..2 {
        let before = Census::settled().await?;

        let child = Child::start(&[], &["serve", &peers::lab().to_string()])?;
        let stream = peers::connect(child.ready()?).await?;
        let (mut idle, monitor) = (peers::connect(server.addr).await?, stream.monitor());
        let pumping = tokio::spawn(peers::pump(stream));
        peers::traffic(&monitor).await?;
        child.kill();
        let server_killed = Err(bounded("the end of a connection to a killed server", pumping).await??);
        peers::ensure_peer_left("server killed", &server_killed)?;

        let child = Child::start(&[], &["pump", &listener.local_addr().to_string()])?;
        let stream = bounded("a client", listener.accept()).await??;
        let monitor = stream.monitor();
        let echoing = tokio::spawn(peers::echo(stream));
        peers::traffic(&monitor).await?;
        child.kill();
        let client_killed = bounded("the end of a connection to a killed client", echoing).await??;
        peers::ensure_peer_left("client killed", &client_killed)?;

        peers::exchange(&mut idle, 1).await?;
        drop(idle);
        bystander.goes_on().await?;
        let after = before.objects_returned().await?;
        if round == 1 {
            println!("   server killed: {server_killed:?}");
            println!("   client killed: {client_killed:?}");
            println!("{}", before.beside(&[("after", &after)]));
        }
    }
    let exchanges = bystander.finish().await?;
    ensure(exchanges > 0, "the bystander exchanged nothing")?;
    println!("   the bystander made {exchanges} exchanges meanwhile");
    server.stop().await;
    Ok(())
}
