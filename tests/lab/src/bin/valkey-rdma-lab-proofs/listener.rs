//! A listener that is closed while clients come and go.

use std::time::Duration;

use valkey_rdma_program::error_chain;
use valkey_rdma_transport::TransportError;

use crate::census::Census;
use crate::outcome::{Outcome, bounded, ensure};
use crate::peers::{self, Bystander, EchoServer};

/// Tasks that connect again and again.
const CALLERS: u64 = 20;

pub(crate) async fn prove() -> Outcome {
    let other = EchoServer::start(peers::lab(), &peers::small()).await?;
    let bystander = Bystander::start(other.addr).await?;
    // Once for what stays from first use.
    round(&bystander).await?;
    let before = Census::settled().await?;
    let (served, refused) = round(&bystander).await?;
    let after = before.returned().await?;
    println!(
        "   {CALLERS} callers, {served} connections served, then the listener closed; the callers' ends:"
    );
    refused.iter().for_each(|(end, count)| println!("   {count:>4} x {end}"));
    println!("{}", before.beside(&[("after", &after)]));
    println!("   the bystander made {} exchanges meanwhile", bystander.finish().await?);
    other.stop().await;
    Ok(())
}

type Ends = std::collections::BTreeMap<String, u64>;

async fn round(bystander: &Bystander) -> Outcome<(u64, Ends)> {
    let server = EchoServer::start(peers::lab(), &peers::small()).await?;
    let held = peers::connect(server.addr).await?;
    let callers = (0..CALLERS).map(|_| tokio::spawn(call(server.addr))).collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let addr = server.addr;
    server.stop().await;
    let (mut served, mut ends) = (0, Ends::new());
    for caller in callers {
        let (count, end) = bounded("a caller's end", caller).await???;
        served += count;
        *ends.entry(end).or_default() += 1;
    }
    // Connections accepted before go on.
    let mut held = held;
    bounded("an exchange", peers::exchange(&mut held, 7)).await??;
    bystander.goes_on().await?;
    let late = bounded("a late caller", peers::connect(addr)).await?;
    ensure(late.is_err(), "the listener still accepts")?;
    Ok((served, ends))
}

/// Connects, exchanges and closes until that fails. Returns how often it did not, and the error.
async fn call(addr: std::net::SocketAddr) -> Outcome<(u64, String)> {
    let mut served = 0;
    loop {
        let error = match peers::connect(addr).await {
            Ok(mut stream) => match peers::exchange(&mut stream, served).await {
                Ok(()) => {
                    served += 1;
                    continue;
                }
                // Accepted, and the listener's task gone before it was handed on.
                Err(error) => return Ok((served, format!("in traffic: {error}"))),
            },
            Err(error) => error,
        };
        let error = error.downcast::<TransportError>()?;
        let typed = matches!(
            *error,
            TransportError::Refused { .. }
                | TransportError::Rejected { .. }
                | TransportError::ClosedInHandshake { .. }
        );
        ensure(typed, format!("an unexpected end: {}", error_chain(error.as_ref())))?;
        return Ok((served, error.to_string()));
    }
}
