//! Many connections at once, again and again.

use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use crate::census::Census;
use crate::outcome::{Outcome, bounded};
use crate::peers::{self, EchoServer};

/// Connect requests in flight at once.
const AT_A_TIME: usize = 8;

/// Holds `held` connections at once, until `churn` have been made and closed.
pub(crate) async fn prove(held: u64, churn: u64) -> Outcome {
    let server = EchoServer::start(peers::lab(), &peers::small()).await?;
    // From the second time on, the allocator has what it will keep.
    hold(&server, held).await?;
    let before = Census::settled().await?;
    let mut peak = hold(&server, held).await?;
    let first = before.returned().await?;
    let times = churn.div_ceil(held);
    for _ in 1..times {
        peak = hold(&server, held).await?;
        before.returned().await?;
    }
    let after = before.returned().await?;
    println!(
        "   {held} connections at once, {times} times, both ends in this process, each with a number sent and read back"
    );
    println!("{}", before.beside(&[("held", &peak), ("once", &first), ("after", &after)]));
    server.stop().await;
    Ok(())
}

async fn hold(server: &EchoServer, count: u64) -> Outcome<Census> {
    let before = Census::settled().await?;
    let (mut streams, mut connecting) = (Vec::new(), JoinSet::new());
    for _ in 0..count {
        if connecting.len() == AT_A_TIME {
            streams.extend(connecting.join_next().await.transpose()?.transpose()?);
        }
        let addr = server.addr;
        connecting.spawn(async move { bounded("a connection", peers::connect(addr)).await? });
    }
    while let Some(stream) = connecting.join_next().await {
        streams.push(stream??);
    }
    for (stream, number) in streams.iter_mut().zip(0..) {
        bounded("an exchange", peers::exchange(stream, number)).await??;
    }
    let peak = Census::take().await?;
    for (mut stream, number) in streams.into_iter().zip(0_u64..) {
        // Every other one is just dropped.
        if number.is_multiple_of(2) {
            bounded("an end in order", stream.shutdown()).await??;
        }
    }
    before.objects_returned().await?;
    Ok(peak)
}
