//! What a process started by a proof does.

use valkey_rdma_transport::{DeviceKind, Listener};

use crate::{Outcome, Role, cable, device, limits, peers};

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
