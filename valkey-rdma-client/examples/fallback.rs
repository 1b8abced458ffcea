//! RDMA first, TCP if that fails. The client says which it is, and why.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::{Client, ConnectionEvent};
use valkey_rdma_mock::MockServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    // Only TCP listens on this port.
    let tcp_only = mock.tcp_url().replace("valkey://", "emulated://") + "?device=inprocess&fallback=tcp";
    let url = std::env::args().nth(1).unwrap_or(tcp_only);

    let client = Client::connect(url).await?;
    println!("connected over {}", client.info().transport);
    match &client.info().fallback {
        Some(reason) => println!("instead of RDMA, because: {reason}"),
        None => {
            println!("as asked for");
            return Ok(());
        }
    }
    let mut events = client.events();
    while let Some(event) = events.next().await {
        if let ConnectionEvent::FellBack { connection, .. } = event {
            println!("an alert for connection {connection}");
            break;
        }
    }
    Ok(())
}
