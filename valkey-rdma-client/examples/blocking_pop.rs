//! A worker waits for jobs. Other commands of the client do not wait behind it.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::{Client, Error, cmd};
use valkey_rdma_mock::MockServer;

async fn worker(client: Client) -> Result<u32, Error> {
    let mut done = 0;
    loop {
        // BLPOP's own limit, 10 s, loses nothing. A limit around the call, as of `tokio::time::timeout`, could lose a job.
        let job: Option<(String, String)> = client.blocking_query(cmd!["BLPOP", "jobs", 10]).await?;
        match job {
            Some((_, job)) if job == "stop" => return Ok(done),
            Some((list, job)) => println!("{job} from {list}"),
            None => println!("nothing to do for 10 s"),
        }
        done += 1;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());
    let client = Client::connect(url).await?;

    let worker = tokio::spawn(worker(client.clone()));
    for job in ["wash", "dry", "stop"] {
        client.command(["RPUSH", "jobs", job]).await?;
    }
    println!("jobs done: {}", worker.await??);
    Ok(())
}
