//! Limits of the process: locked memory and descriptors. Each runs in its own process, as a user whom they apply to.

use valkey_rdma_program::error_chain;
use valkey_rdma_transport::{Config, DeviceKind, Listener, Stream, TransportError};

use crate::census::Census;
use crate::child::Child;
use crate::outcome::{Outcome, bounded, ensure};
use crate::peers::{self, Bystander, EchoServer};

/// Root is bound by no limit on locked memory.
const NOBODY: [&str; 3] = ["setpriv", "--reuid=65534", "--clear-groups"];

pub(crate) async fn memlock() -> Outcome {
    let under = [&NOBODY[..], &["prlimit", "--memlock=8388608"]].concat();
    let said = Child::start(&under, &["memlock"])?.finish()?;
    said.iter().for_each(|line| println!("{line}"));
    Ok(())
}

pub(crate) async fn descriptors() -> Outcome {
    let said = Child::start(&["prlimit", "--nofile=64"], &["descriptors"])?.finish()?;
    said.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// The role: 8 MiB of locked memory, and windows of 64 MiB asked for on either side.
pub(crate) async fn run_into_memlock() -> Outcome {
    let server = EchoServer::start(peers::lab(), &peers::small()).await?;
    let bystander = Bystander::start(server.addr).await?;
    let large = peers::small().rx_size(64 << 20);
    let mut greedy = Listener::bind(DeviceKind::Verbs, peers::lab(), &large).await?;
    for round in 0..2 {
        let before = Census::settled().await?;
        let client = error_of(Stream::connect(DeviceKind::Verbs, server.addr, &large).await)?;
        let caller = tokio::spawn(refused_caller(greedy.local_addr()));
        let listener = error_of(bounded("a request", greedy.accept()).await?)?;
        let refused = bounded("the caller's end", caller).await???;
        for error in [&client, &listener] {
            let TransportError::Memory { bytes: 67_108_864, limit: Some(8_388_608), .. } = error else {
                return Err(format!("an unexpected end: {}", error_chain(error)).into());
            };
        }
        bystander.goes_on().await?;
        let after = before.objects_returned().await?;
        if round == 1 {
            println!("   client:   {}", error_chain(&client));
            println!("   listener: {}", error_chain(&listener));
            println!("   its peer: {}", error_chain(&refused));
            println!("{}", before.beside(&[("after", &after)]));
        }
    }
    println!("   the bystander made {} exchanges meanwhile", bystander.finish().await?);
    Ok(())
}

/// The role: 64 descriptors. Connections are made until there are none left, on the client's side, then on the
/// listener's.
pub(crate) async fn run_into_descriptors() -> Outcome {
    let server = EchoServer::start(peers::lab(), &peers::small()).await?;
    let bystander = Bystander::start(server.addr).await?;
    for round in 0..2 {
        let before = Census::settled().await?;
        let mut held = Vec::new();
        let error = loop {
            match bounded("a connection", peers::connect(server.addr)).await? {
                Ok(stream) => held.push(stream),
                Err(error) => break error.downcast::<TransportError>()?,
            }
        };
        // Whichever side needed the last one: its own shortage, or the peer's word that it could not.
        let typed = matches!(
            *error,
            TransportError::Descriptors { limit: Some(64), .. }
                | TransportError::Refused { .. }
                | TransportError::Rejected { .. }
                | TransportError::ClosedInHandshake { .. }
        );
        ensure(typed, format!("an unexpected end: {}", error_chain(error.as_ref())))?;
        let count = held.len();
        let mut own = Vec::new();
        let shortage = loop {
            match Listener::bind(DeviceKind::Verbs, peers::lab(), &Config::default()).await {
                Ok(listener) => own.push(listener),
                Err(error) => break error,
            }
        };
        let TransportError::Descriptors { limit: Some(64), .. } = shortage else {
            return Err(format!("an unexpected end: {}", error_chain(&shortage)).into());
        };
        drop(own);
        drop(held);
        bystander.goes_on().await?;
        let after = before.objects_returned().await?;
        // As before.
        let mut again = bounded("a connection", peers::connect(server.addr)).await??;
        peers::exchange(&mut again, 1).await?;
        drop(again);
        before.objects_returned().await?;
        if round == 1 {
            println!("   after {count} connections: {}", error_chain(error.as_ref()));
            println!("   listening: {}", error_chain(&shortage));
            println!("{}", before.beside(&[("after", &after)]));
        }
    }
    println!("   the bystander made {} exchanges meanwhile", bystander.finish().await?);
    Ok(())
}

/// Connects where it is refused.
async fn refused_caller(addr: std::net::SocketAddr) -> Outcome<TransportError> {
    error_of(Stream::connect(DeviceKind::Verbs, addr, &peers::small()).await)
}

fn error_of<T>(outcome: Result<T, TransportError>) -> Outcome<TransportError> {
    outcome.err().ok_or_else(|| "it succeeded beyond the limit".into())
}
