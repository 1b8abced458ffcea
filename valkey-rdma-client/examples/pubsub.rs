//! Messages are published and received.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::Client;
use valkey_rdma_client::pubsub::{Event, Subscription};
use valkey_rdma_mock::MockServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());
    let client = Client::connect(url).await?;

    let mut subscriber = client.subscriber().await?;
    subscriber.subscribe(Subscription::Channel, ["news"]).await?;
    subscriber.subscribe(Subscription::Pattern, ["weather.*"]).await?;
    for (channel, message) in [("news", "hello"), ("weather.oslo", "snow"), ("news", "bye")] {
        client.command(["PUBLISH", channel, message]).await?;
    }
    let mut left = 3;
    while left > 0 {
        match subscriber.next().await? {
            Event::Message(message) => {
                println!("{}: {}", message.channel.escape_ascii(), message.payload.escape_ascii());
                left -= 1;
            }
            Event::Missed(count) => println!("too slow for {count} messages"),
            Event::Reconnected => println!("messages may be missing"),
            _ => {}
        }
    }
    Ok(())
}
