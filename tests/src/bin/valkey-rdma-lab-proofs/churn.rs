//! Many connections, one after the other.

use tokio::io::AsyncWriteExt;

use crate::census::Census;
use crate::peers::{self, EchoServer};
use crate::{Outcome, bounded};

/// What libraries and the allocator keep from their first use is there after so many.
const WARM_UP: u64 = 50;

pub(crate) async fn prove(count: u64) -> Outcome {
    let server = EchoServer::start(peers::lab(), &peers::small()).await?;
    for number in 0..WARM_UP {
        connect_and_close(&server, number).await?;
    }
    let before = Census::take().await?;
    for number in 0..count / 2 {
        connect_and_close(&server, number).await?;
    }
    let halfway = before.returned().await?;
    for number in count / 2..count {
        connect_and_close(&server, number).await?;
    }
    let after = before.returned().await?;
    println!("   {count} connections, each with a number sent and read back");
    println!("{}", before.beside(&[("halfway", &halfway), ("after", &after)]));
    server.stop().await;
    Ok(())
}

async fn connect_and_close(server: &EchoServer, number: u64) -> Outcome {
    let once = async {
        let mut stream = peers::connect(server.addr).await?;
        peers::exchange(&mut stream, number).await?;
        // Every other one is just dropped.
        if number.is_multiple_of(2) {
            stream.shutdown().await?;
        }
        Ok(())
    };
    bounded("a connection", once).await?
}
