//! The server to measure: from flags to open connections.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use valkey_rdma_client::{Client, Config, Endpoint, Error, Protocol, Transport};

use crate::args::{self, Args, Instead};
use crate::interrupt::Interrupt;

/// How many connects are under way at once. A server accepts one after the other, and pins memory for each: the last
/// of many would spend its deadline waiting for the others.
const CONNECTS_AT_ONCE: usize = 8;

/// The endpoint that the flags describe.
///
/// # Errors
/// [`Instead::Refuse`] if the URL makes no sense, or contradicts another flag.
pub fn endpoint(args: &Args) -> Result<Endpoint, Instead> {
    let mut endpoint = match &args.url {
        Some(url) => {
            url.as_str().parse::<Endpoint>().map_err(|error| Instead::Refuse(format!("--url: {error}")))?
        }
        None => from_flags(args),
    };
    if let Some(bytes) = args.rx_size {
        if endpoint.transport() == Transport::Tcp {
            let reason = "--rx-size is the size of an RDMA window, and this server is reached over TCP";
            return Err(Instead::Refuse(reason.to_owned()));
        }
        if endpoint.rx_size().is_some() {
            return Err(Instead::Refuse("--rx-size contradicts the URL's rx_size".to_owned()));
        }
        endpoint.set_rx_size(bytes);
    }
    Ok(endpoint)
}

fn from_flags(args: &Args) -> Endpoint {
    let transport = match args.transport {
        args::Transport::Rdma => Transport::Rdma,
        args::Transport::Tcp => Transport::Tcp,
        args::Transport::Emulated => Transport::Emulated,
    };
    let mut endpoint = Endpoint::new(transport, args.host.as_str(), args.port);
    match (&args.user, &args.password) {
        (Some(user), Some(password)) => drop(endpoint.set_login(user, password.as_str())),
        (None, Some(password)) => drop(endpoint.set_password(password.as_str())),
        (_, None) => {}
    }
    endpoint.set_database(args.dbnum);
    endpoint.set_protocol(if args.resp3 { Protocol::Resp3 } else { Protocol::Resp2 });
    endpoint
}

/// Opens `count` connections concurrently and tells how long it took until the last one was open. `None`: the user
/// interrupted.
///
/// After a failure or an interrupt no connect is begun, and those under way are awaited: a Valkey server does not
/// survive a client that vanishes between request and accept (spec clause H-6). Over TCP, an interrupt drops them.
///
/// # Errors
/// The first connect that fails. Those that met their deadline may still be completed by the transport then.
pub async fn connect(
    endpoint: &Endpoint,
    count: usize,
    interrupt: &Interrupt,
) -> Result<Option<(Vec<Client>, Duration)>, Error> {
    let connecting = connect_all(endpoint, count, interrupt);
    let connected = match endpoint.transport() {
        Transport::Tcp => tokio::select! {
            connected = connecting => connected,
            () = interrupt.asked() => return Ok(None),
        },
        _ => connecting.await,
    };
    if interrupt.is_asked() { Ok(None) } else { connected.map(Some) }
}

async fn connect_all(
    endpoint: &Endpoint,
    count: usize,
    interrupt: &Interrupt,
) -> Result<(Vec<Client>, Duration), Error> {
    let start = Instant::now();
    let mut clients = Vec::with_capacity(count);
    let mut failure = None;
    let mut connects = JoinSet::new();
    for _ in 0..count {
        if connects.len() == CONNECTS_AT_ONCE {
            take_one(&mut connects, &mut clients, &mut failure).await;
        }
        if failure.is_some() || interrupt.is_asked() {
            break;
        }
        let endpoint = endpoint.clone();
        connects.spawn(async move { Client::connect_with(&endpoint, &config()).await });
    }
    while !connects.is_empty() {
        take_one(&mut connects, &mut clients, &mut failure).await;
    }
    match failure {
        None => Ok((clients, start.elapsed())),
        Some(error) => Err(error),
    }
}

/// A measurement ends with its connection: one that came back would hide what was lost meanwhile.
fn config() -> Config {
    let mut config = Config::default();
    config.reconnect(None).command_timeout(None);
    config
}

async fn take_one(
    connects: &mut JoinSet<Result<Client, Error>>,
    clients: &mut Vec<Client>,
    failure: &mut Option<Error>,
) {
    match connects.join_next().await {
        Some(Ok(Ok(client))) => clients.push(client),
        Some(Ok(Err(error))) => drop(failure.get_or_insert(error)),
        Some(Err(error)) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => unreachable!("nobody aborts a connect"),
        },
        None => {}
    }
}
