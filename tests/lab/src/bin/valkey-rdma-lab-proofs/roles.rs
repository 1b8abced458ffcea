//! What a process started by a proof does.

use std::net::SocketAddr;

use clap::Subcommand;
use valkey_rdma_transport::{DeviceKind, Listener};

use crate::outcome::Outcome;
use crate::{cable, device, limits, peers};

/// What a process started by a proof does.
#[derive(Clone, Copy, Debug, Subcommand)]
#[command(hide = true)]
pub(crate) enum Role {
    /// Accepts connections and sends every byte back
    Serve { addr: SocketAddr },
    /// Connects, and sends and reads back without end
    Pump { addr: SocketAddr },
    /// Runs into the limit on locked memory
    Memlock,
    /// Runs into the limit on descriptors
    Descriptors,
    /// Sees its device removed while it uses it
    Removed { doomed: SocketAddr },
    /// Listens at the far end of a cable that will be cut
    CableFar { listen: SocketAddr },
    /// Connects over the cable to the far end, and cuts it
    CableNear { far: SocketAddr, local: SocketAddr },
    /// Sees its port go down and come up again
    PortDown { addr: SocketAddr },
    /// Is refused, because the device is down, and says so
    Refused { addr: SocketAddr },
}

pub(crate) async fn play(role: Role) -> Outcome {
    match role {
        Role::Serve { addr } => {
            let listener = Listener::bind(DeviceKind::Verbs, addr, &peers::small()).await?;
            println!("ready {}", listener.local_addr());
            peers::serve(listener).await;
            Ok(())
        }
        Role::Pump { addr } => Err(peers::pump(peers::connect(addr).await?).await.into()),
        Role::Memlock => limits::run_into_memlock().await,
        Role::Descriptors => limits::run_into_descriptors().await,
        Role::Removed { doomed } => device::see_removal(doomed).await,
        Role::CableFar { listen } => cable::far(listen).await,
        Role::CableNear { far, local } => cable::near(far, local).await,
        Role::PortDown { addr } => device::see_port_down(addr).await,
        Role::Refused { addr } => device::be_refused(addr).await,
    }
}
