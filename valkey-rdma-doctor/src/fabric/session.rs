//! Two ends that are connected in every way: control, queue pairs, TCP.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_transport::TransportError;

use super::control::Control;
use super::error::{FabricError, Failure};
use super::lane::Lane;
use super::message::{Message, Window};
use super::run::{Device, Run};

/// How long it is waited for the reason that a connection broke.
const REASON: Duration = Duration::from_secs(1);

/// One end of a session.
pub(super) struct Session {
    pub(super) control: Control,
    pub(super) lanes: Vec<Lane>,
    pub(super) tcp: Vec<TcpStream>,
}

impl Session {
    /// Adds the next queue pair, once it is connected.
    pub(super) async fn add_lane(
        &mut self,
        connecting: impl Future<Output = Result<Lane, TransportError>>,
    ) -> Result<(), FabricError> {
        let patience = self.control.patience;
        self.control.now(format!("connecting queue pair {}", self.lanes.len()));
        match self.control.silent_during(timeout(patience, connecting)).await? {
            Ok(Ok(lane)) => self.lanes.push(lane),
            Ok(Err(error)) => return Err(self.explain(Failure::Device(error)).await),
            Err(_) => return Err(self.control.silent(patience)),
        }
        Ok(())
    }

    /// Takes what carries bytes, made ready for a run, and how long the peer may be silent in it. The lanes and streams come back unless
    /// the session fails.
    pub(super) fn take_wires(&mut self, run: Run) -> (Vec<Lane>, Vec<TcpStream>, Duration) {
        let patience = self.control.patience_for(run.bytes_in_flight(self.lanes.len()));
        self.control.now(run.to_string());
        self.lanes.iter_mut().for_each(|lane| lane.set_polling(run.polling()));
        (std::mem::take(&mut self.lanes), std::mem::take(&mut self.tcp), patience)
    }

    /// Sends the addresses and keys of this side.
    pub(super) async fn send_memory(&mut self) -> Result<(), FabricError> {
        let windows: Vec<Window> = self.lanes.iter().map(Lane::window).collect();
        let (device, tcp) = (self.device(), self.tcp.len());
        self.control.send(&Message::Memory { windows, device, tcp }).await
    }

    /// Takes the addresses and keys of the peer. Returns its device, and how many TCP connections it has made.
    pub(super) async fn take_memory(&mut self) -> Result<(Device, usize), FabricError> {
        match self.control.answer().await? {
            Message::Memory { windows, device, tcp } if windows.len() == self.lanes.len() => {
                for (lane, window) in self.lanes.iter_mut().zip(windows) {
                    lane.aim(window);
                }
                Ok((device, tcp))
            }
            other => Err(self.control.unexpected(&other)),
        }
    }

    /// The length of the longest message.
    pub(super) fn longest(&self) -> u32 {
        self.lanes[0].longest()
    }

    /// This side's device.
    pub(super) fn device(&self) -> Device {
        self.lanes[0].device()
    }

    /// The error to report for a failure of this side: why the peer broke the connection, if it says so or is gone.
    pub(super) async fn explain(&mut self, failure: Failure) -> FabricError {
        if let Ok(Err(error)) = timeout(REASON, self.control.next()).await {
            return error;
        }
        let during = self.control.during.clone();
        match failure {
            Failure::Device(source) => FabricError::Device { during, source },
            Failure::Tcp(error) => FabricError::Tcp(error),
        }
    }
}
