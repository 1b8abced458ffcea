//! What happens to the connections, and what they have counted.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::{Client, Config, ConnectionEvent};
use valkey_rdma_mock::MockServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Another server would not lose the connection on purpose, and the example would wait for that.
    if std::env::args().len() > 1 {
        return Err("this example takes no URL: it runs on a mock, which loses a connection".into());
    }
    let mock = MockServer::start().await;
    let client = Client::connect_with(mock.url(), &Config::default().name("metrics")).await?;

    let mut events = client.events();
    client.command(["PING"]).await?;
    mock.on("INCR").drop_connection().times(1);
    if let Err(error) = client.command(["INCR", "visits"]).await {
        println!("{}", error.fate());
    }
    while let Some(event) = events.next().await {
        match event {
            ConnectionEvent::Connected { info, .. } => println!("connected over {}", info.transport),
            ConnectionEvent::Lost { cause, .. } => println!("lost: {cause}"),
            ConnectionEvent::Reconnected { .. } => {
                println!("connected again");
                break;
            }
            other => println!("{other}"),
        }
    }

    let counters = client.counters();
    println!("commands: {}, reconnects: {}", counters.commands, counters.reconnects);
    for connection in client.connections() {
        println!("{} connection, {}", connection.purpose, connection.state);
        if let Some(stats) = connection.stats {
            println!("doorbells since it was connected: {}", stats.device.doorbells > 0);
        }
    }
    Ok(())
}
