//! A store for the KV caches of language models: puts and gets chunks of 32 MiB by key, checks every byte, and shows
//! progress and rates.
//!
//! ```text
//! cargo run --release -p valkey-rdma-client --example kv_cache -- rdma://10.0.0.7 16
//! cargo run --release -p valkey-rdma-client --no-default-features --example kv_cache -- valkey://127.0.0.1 16
//! ```
//!
//! Each chunk is sent from the buffer in which the program made it, and goes straight from the receive window into the
//! program's memory: nowhere is a second copy of it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::process::ExitCode;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use valkey_rdma_client::{BufferPool, Client, Command, Error};

/// Bytes in a chunk: some hundred tokens of a large model.
const CHUNK: usize = 32 << 20;
/// Bytes handed over at once, so that progress is seen within a chunk.
const PIECE: usize = 1 << 20;

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "valkey://127.0.0.1:6379".to_owned());
    let count = match arguments.next().map_or(Ok(8), |count| count.parse()) {
        Ok(count) => count,
        Err(error) => {
            eprintln!("how many chunks? {error}");
            return ExitCode::FAILURE;
        }
    };
    match run(&url, count).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("some chunks came back changed, or not at all");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every chunk came back as it was.
async fn run(url: &str, count: u64) -> Result<bool, Error> {
    let client = Client::connect(url).await?;
    println!("{}", client.info());
    // Two chunks: one is made while the end of the other is still on its way.
    let pool = BufferPool::new(2, CHUNK).expect("less than 4 GiB");

    let bar = progress("put", count);
    let begin = Instant::now();
    for number in 0..count {
        let mut chunk = pool.take().await;
        fill(&mut chunk, number);
        put(&client, &key(number), &chunk.freeze(), &bar).await?;
    }
    finish(&bar, "put", count, begin);

    let bar = progress("get", count);
    let begin = Instant::now();
    let (mut chunk, mut expected) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut right = 0;
    for number in 0..count {
        let got = get(&client, &key(number), &mut chunk, &bar).await?;
        fill(&mut expected, number);
        right += u64::from(got && chunk == expected);
        client.command(["DEL", &key(number)]).await?;
    }
    finish(&bar, "get", count, begin);
    println!("{right} of {count} chunks right");
    client.close().await;
    Ok(right == count)
}

async fn put(client: &Client, key: &str, chunk: &[u8], bar: &ProgressBar) -> Result<(), Error> {
    let mut value = client.stream_argument(Command::new("SET").arg(key), chunk.len()).await?;
    for piece in chunk.chunks(PIECE) {
        value.write(piece).await?;
        bar.inc(piece.len() as u64);
    }
    Ok(value.finish().await?.convert()?)
}

/// `false` if there is no such chunk, or not of this length.
async fn get(client: &Client, key: &str, chunk: &mut [u8], bar: &ProgressBar) -> Result<bool, Error> {
    let Some(mut value) = client.stream_reply(Command::new("GET").arg(key)).await? else { return Ok(false) };
    if value.len() != chunk.len() {
        return Ok(false);
    }
    while value.remaining() > 0 {
        let at = chunk.len() - value.remaining();
        let read = value.read(&mut chunk[at..]).await?;
        bar.inc(read as u64);
    }
    // At its end: the connection serves the next chunk too.
    Ok(value.chunk().await?.is_none())
}

fn key(number: u64) -> String {
    format!("kv:{number}")
}

/// Bytes that differ from chunk to chunk and from place to place.
fn fill(chunk: &mut [u8], number: u64) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in chunk.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
}

fn progress(what: &'static str, count: u64) -> ProgressBar {
    let bar = ProgressBar::new(count * CHUNK as u64).with_message(what);
    let style =
        ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn finish(bar: &ProgressBar, what: &str, count: u64, begin: Instant) {
    bar.finish_and_clear();
    let (elapsed, bytes) = (begin.elapsed(), count * CHUNK as u64);
    let rate = bytes as f64 / elapsed.as_secs_f64() / f64::from(1 << 20);
    println!("{what}: {count} chunks of {} MiB in {elapsed:.2?}, {rate:.0} MiB/s", CHUNK >> 20);
}
