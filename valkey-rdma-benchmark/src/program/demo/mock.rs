//! The server of the demo: the mock, in this process, on a thread of its own.

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;
use valkey_rdma_client::{self as client, Endpoint};
use valkey_rdma_mock::{BindError, DeviceKind, Mock, Server, TransportConfig};

use super::DemoError;

/// A running mock; dropping it stops it.
///
/// It has its own thread and runtime, as a server has its own process: client and server run side by side, and
/// neither is charged for the other's work.
#[derive(Debug)]
pub(super) struct MockServer {
    emulated: Endpoint,
    tcp: Endpoint,
    /// Dropped to ask the thread to end.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MockServer {
    /// Starts a mock on free ports of the emulated device and of TCP loopback.
    pub(super) async fn start() -> Result<MockServer, DemoError> {
        let (ready, started) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("mock".to_owned()).spawn(move || serve(ready, stopped))?;
        let addresses = started.await.map_err(|_| DemoError::MockEnded)??;
        let [emulated, tcp] = addresses;
        Ok(MockServer {
            emulated: endpoint(client::Transport::Emulated, emulated),
            tcp: endpoint(client::Transport::Tcp, tcp),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where to reach it, emulated device first.
    pub(super) fn endpoints(&self) -> [&Endpoint; 2] {
        [&self.emulated, &self.tcp]
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, has been printed and has shown as lost connections.
            let _ = thread.join();
        }
    }
}

type Addresses = Result<[SocketAddr; 2], DemoError>;

/// The thread: serves until `stopped` resolves.
fn serve(ready: oneshot::Sender<Addresses>, stopped: oneshot::Receiver<()>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error.into()))),
    };
    runtime.block_on(async {
        match listen().await {
            Ok(server) => {
                let addresses = [server.listening()[0].addr, server.listening()[1].addr];
                let _ = ready.send(Ok(addresses));
                // Resolves with an error when the other end is dropped, which is how it is asked to stop.
                let _ = stopped.await;
            }
            Err(error) => drop(ready.send(Err(error.into()))),
        }
    });
}

async fn listen() -> Result<Server, BindError> {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::builder(Mock::new())
        .rdma(DeviceKind::Emulated, any_port, &TransportConfig::default())
        .tcp(any_port)
        .start()
        .await
}

fn endpoint(transport: client::Transport, addr: SocketAddr) -> Endpoint {
    Endpoint::new(transport, addr.ip().to_string(), addr.port())
}
