//! Many connections at once.

use tokio::task::JoinSet;

use crate::census::Census;
use crate::outcome::{Outcome, bounded};
use crate::peers::{self, EchoServer};

/// Connect requests in flight at once.
const AT_A_TIME: usize = 8;

pub(crate) async fn prove(count: u64) -> Outcome {
    let server = EchoServer::start(peers::lab(), &peers::small()).await?;
    // Twice: from the second time on, the allocator has what it will keep.
    hold(&server, count).await?;
    let before = Census::settled().await?;
    let peak = hold(&server, count).await?;
    let after = before.returned().await?;
    println!(
        "   {count} connections at once, both ends in this process, each with a number sent and read back"
    );
    println!("{}", before.beside(&[("held", &peak), ("after", &after)]));
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
    drop(streams);
    before.objects_returned().await?;
    Ok(peak)
}
