//! `/metrics` and `/health` over HTTP.
//!
//! Two fixed documents need no HTTP library: one request per connection, its head at most 8 KiB and within 1 s, answered within 5 s.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tracing::debug;
use valkey_rdma_transport::sync::lock;

use crate::core::Core;
use crate::observe::prometheus::prometheus;
use crate::upstream::backend::{Backend, host_and_port};
use crate::upstream::backends::Backends;
use crate::upstream::open_error::one_line;

/// Answers requests, until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, core: Arc<Core>, backends: Arc<Mutex<Backends>>) {
    let free = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let accepted = listener.accept().await;
        // Further requests wait in the listener's queue.
        let permit = free.clone().acquire_owned().await;
        let (core, backends) = (core.clone(), backends.clone());
        match accepted {
            Ok((stream, _)) => drop(tokio::spawn(async move {
                let _permit = permit;
                if !matches!(timeout(LIMIT, answer(stream, &core, &backends)).await, Ok(Ok(()))) {
                    debug!("a request over HTTP was not answered");
                }
            })),
            Err(error) => {
                debug!(%error, "an HTTP client was not accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, core: &Core, backends: &Mutex<Backends>) -> io::Result<()> {
    let Some(head) = timeout(HEAD_LIMIT, read_head(&mut stream)).await?? else { return Ok(()) };
    let line = String::from_utf8_lossy(&head);
    let mut words = line.split_ascii_whitespace();
    // Some probes ask with HEAD, and some scrapers add parameters, which mean nothing here.
    let method = words.next();
    let path = words.next().map(|path| path.split_once('?').map_or(path, |(path, _)| path));
    let (status, kind, body) = match (method, path) {
        (Some("GET" | "HEAD"), Some("/metrics")) => {
            ("200 OK", "text/plain; version=0.0.4", prometheus(core, &lock(backends)))
        }
        (Some("GET" | "HEAD"), Some(path)) => {
            let asked = backends_of(path, &lock(backends));
            match asked {
                // The listeners are closed: a balancer must send clients elsewhere.
                Some(_) if core.draining.load(Ordering::Relaxed) => {
                    (UNAVAILABLE, "text/plain", DRAINING.to_owned())
                }
                Some(asked) => health(asked).await,
                None => ("404 Not Found", "text/plain", PATHS.to_owned()),
            }
        }
        _ => ("405 Method Not Allowed", "text/plain", "GET and HEAD only\n".to_owned()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}", body.len());
    let body = if method == Some("HEAD") { "" } else { &body };
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes()).await?;
    stream.shutdown().await
}

/// The head of a request. `None` if it is too long, or the connection ends before.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > LONGEST || stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(head))
}

/// What `/health` asks about: everything, or one server, `/health/HOST:PORT`.
fn backends_of(path: &str, backends: &Backends) -> Option<Vec<Arc<Backend>>> {
    let all = backends.all();
    let address = match path.strip_prefix("/health")? {
        "" => return Some(all),
        rest => rest.strip_prefix('/')?,
    };
    let is_asked = |backend: &Arc<Backend>| host_and_port(backend.server.endpoint()) == address;
    let asked: Vec<_> = all.into_iter().filter(is_asked).collect();
    (!asked.is_empty()).then_some(asked)
}

/// Healthy: every shared connection that has clients is connected, except those whose login the server refuses, and a server to which
/// no connection is in use, or whose errors raise a doubt, answers when it is asked that it is ready.
async fn health(backends: Vec<Arc<Backend>>) -> (&'static str, &'static str, String) {
    let (mut lines, mut asked) = (String::new(), Vec::new());
    for backend in backends {
        let mut is_missed = false;
        for shared in backend.all_shared() {
            let Some(why) = shared.missed() else { continue };
            is_missed = true;
            let (server, why) = (backend.server.endpoint(), one_line(&why.to_string()));
            lines += &format!("not connected to {server} ({}): {why}\n", shared.key);
        }
        if !is_missed {
            asked.push(tokio::spawn(async move { backend.unreachable().await }));
        }
    }
    for asked in asked {
        match asked.await {
            Ok(None) => {}
            Ok(Some(why)) => lines += &format!("{why}\n"),
            Err(error) => lines += &format!("cannot ask a server: {error}\n"),
        }
    }
    if lines.is_empty() {
        return ("200 OK", "text/plain", "ok\n".to_owned());
    }
    (UNAVAILABLE, "text/plain", lines)
}

const PATHS: &str = "/metrics, /health, or /health/HOST:PORT of a server\n";
const UNAVAILABLE: &str = "503 Service Unavailable";
const DRAINING: &str = "draining\n";
/// Requests answered at once.
const AT_ONCE: usize = 16;
/// Longest head of a request, in bytes.
const LONGEST: usize = 8192;
const LIMIT: Duration = Duration::from_secs(5);
/// Connections that send nothing must not hold up a probe for as long as it waits.
const HEAD_LIMIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
