//! A mock Valkey server on RDMA and TCP, for tests and trials.

mod options;

use std::future::pending;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use valkey_rdma_mock::{
    Address, BindError, DeviceKind, Mock, MockCluster, Server, TlsError, TransportError, Transports, forward,
};
use valkey_rdma_program::{LevelFilter, Signals, error_chain, fail, refuse, runtime, start};
use valkey_rdma_transport::{Listener, SharedCq, address, device};

use crate::options::Options;

fn main() -> ExitCode {
    let options: Options = match start(LevelFilter::WARN) {
        Ok(options) => options,
        Err(status) => return status,
    };
    if let Err(message) = options.check() {
        return refuse(message);
    }
    // The server starts its own threads; the proxy does not.
    let threads = if options.proxy.is_some() { options.threads } else { 1 };
    let ended = runtime(threads).and_then(|runtime| runtime.block_on(run(options)));
    ended.map_or_else(|message| fail(&message), |()| ExitCode::SUCCESS)
}

async fn run(options: Options) -> Result<(), String> {
    // Before `ready` is printed: a signal may come at once after it.
    let mut signals = Signals::to_stop().map_err(|error| error_chain(&error))?;
    let mut signalled = async || signals.next().await;

    let mut reloads = Reloads::new(options.tls().is_some())?;

    if let Some(primaries) = options.cluster {
        let cluster = start_cluster(&options, primaries).await?;
        announce(cluster.urls().into_iter())?;
        tokio::select! {
            () = signalled() => {}
            () = reloads.each(async || cluster.reload_tls().await) => {}
        }
        return stop(cluster.shutdown(), signalled).await;
    }
    match (options.proxy, options.rdma_port()) {
        (Some(valkey), Some(port)) => proxy(listen(&options, port).await?, valkey, signalled).await,
        _ => serve(start_server(&options).await?, signalled, reloads).await,
    }
}

/// The listener for RDMA, with the faults that were asked for.
async fn listen(options: &Options, port: u16) -> Result<Listener, String> {
    let mut config = options.transport_config();
    let device = options.device.unwrap_or(DeviceKind::Verbs);
    if device == DeviceKind::Verbs && options.threads == 1 {
        config = config.shared_cq(&SharedCq::new());
    }
    let addr = options.address(port);
    let honest = device::listen(device, addr, &config.device_options()).await;
    let mut listener = honest.map_err(|error| explain(&error.into()))?;
    if let Some(faults) = &options.faults {
        let _ = writeln!(io::stderr(), "note: misbehaves on purpose: --faults {faults}");
        listener = faults.listener(listener);
    }
    Ok(Listener::over(listener, &config))
}

/// Starts the mock.
async fn start_server(options: &Options) -> Result<Server, String> {
    let mut mock = Mock::new();
    if let Some(password) = options.requirepass.clone() {
        mock = mock.requirepass(password);
    }
    let mut server = Server::builder(mock).direct(options.direct.unwrap_or(true));
    if options.threads > 1 {
        server = server.threads(options.threads.into());
    }
    if let Some(port) = options.rdma_port() {
        server = server.listener(listen(options, port).await?);
    }
    let encrypted = |address: Address| match options.tls() {
        Some(tls) => address.tls(tls),
        None => address,
    };
    if let Some(port) = options.tls_rdma_port {
        server = server.listen(encrypted(listen(options, port).await?.into()));
    }
    if let Some(port) = options.tcp_port {
        server = server.tcp(options.address(port));
    }
    if let Some(port) = options.tls_port {
        server = server.listen(encrypted(Address::tcp(options.address(port))));
    }
    let server = server.start().await.map_err(|error| explain(&error))?;
    announce(server.urls())?;
    Ok(server)
}

/// Starts a cluster of mocks.
async fn start_cluster(options: &Options, primaries: u16) -> Result<MockCluster, String> {
    let transports = match options.has_rdma() {
        true => Transports::Rdma(options.device.unwrap_or(DeviceKind::Verbs)),
        false => Transports::Tcp,
    };
    let builder = MockCluster::builder(primaries.into())
        .replicas(options.replicas.into())
        .transports(transports)
        .transport(&options.transport_config())
        .tls(options.tls())
        .bind(options.bind.ip())
        .first_port(options.first_port());
    builder.start().await.map_err(|error| explain(&error))
}

/// Serves until a signal comes or the last listener has ended.
async fn serve(server: Server, mut signalled: impl AsyncFnMut(), mut reloads: Reloads) -> Result<(), String> {
    tokio::select! {
        () = signalled() => {}
        () = server.wait() => return Err(NO_LISTENER.to_owned()),
        () = reloads.each(async || server.reload_tls()) => {}
    }
    stop(server.shutdown(), signalled).await
}

/// The signals to read certificates again. `None`: there are none to read, and SIGHUP ends the program.
struct Reloads(Option<Signals>);

impl Reloads {
    fn new(wanted: bool) -> Result<Self, String> {
        Ok(Self(wanted.then(Signals::to_reload).transpose().map_err(|error| error_chain(&error))?))
    }

    /// Reads the certificates at each signal. Never completes.
    async fn each(&mut self, mut reload: impl AsyncFnMut() -> Result<(), TlsError>) {
        let Some(signals) = &mut self.0 else { return pending().await };
        loop {
            signals.next().await;
            let outcome = match reload().await {
                Ok(()) => "note: the certificates were read again".to_owned(),
                Err(error) => format!("note: the old certificates stay in use: {}", error_chain(&error)),
            };
            // A reader of the notes that is gone does not end the mock.
            let _ = writeln!(io::stderr(), "{outcome}");
        }
    }
}

/// Shuts down, unless a second signal comes before the end.
async fn stop(shutdown: impl Future<Output = ()>, mut signalled: impl AsyncFnMut()) -> Result<(), String> {
    tokio::select! {
        () = shutdown => Ok(()),
        () = signalled() => Err("stopped before all replies were delivered".to_owned()),
    }
}

/// Forwards connections until a signal comes or the listener has ended.
async fn proxy(
    listener: Listener,
    valkey: SocketAddr,
    mut signalled: impl AsyncFnMut(),
) -> Result<(), String> {
    let scheme = if listener.device() == DeviceKind::Verbs { "rdma" } else { "emulated" };
    announce([format!("{scheme}://{}", address::authority(listener.local_addr()))].into_iter())?;
    tokio::select! {
        () = signalled() => Ok(()),
        error = forward(listener, valkey) => Err(format!("{NO_LISTENER}: {}", error_chain(&error))),
    }
}

const NO_LISTENER: &str = "no listener is left, so no client can connect";

/// Prints a URL for each address. Clients on this machine cannot connect to an unspecified address, but to loopback.
fn announce(urls: impl Iterator<Item = String>) -> Result<(), String> {
    let mut stdout = io::stdout().lock();
    let print = || {
        for url in urls {
            let url = url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:");
            writeln!(stdout, "ready {url}")?;
        }
        stdout.flush()
    };
    print().map_err(|error: io::Error| format!("cannot write to standard output: {error}"))
}

/// The error with its causes, and what the user can do about it.
fn explain(error: &BindError) -> String {
    let advice = match error {
        BindError::Rdma(
            TransportError::NotBuilt { .. } | TransportError::NoDevice | TransportError::Obstacle { .. },
        ) => "; or serve TCP instead, with --tcp-port N alone",
        _ => "",
    };
    error_chain(error) + advice
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Before `Server::wait` was used, the program waited for a signal here.
    #[tokio::test]
    async fn a_server_whose_last_listener_has_ended_is_an_error() {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = Server::builder(Mock::new()).tcp(any_port).start().await.expect("serves");
        let listening = server.listening()[0];
        assert!(server.close_listener(listening));
        let never = async || pending::<()>().await;
        let ended =
            tokio::time::timeout(std::time::Duration::from_secs(20), serve(server, never, Reloads(None)))
                .await;
        assert_eq!(ended.expect("ends"), Err(NO_LISTENER.to_owned()));
    }
}
