//! What connections leave behind.

use std::future::poll_fn;

use super::*;
use crate::device::ConnectRequest;
use crate::device::DeviceListener;
use crate::emulated::device::Device;
use crate::emulated::listener::EmulatedListener;

#[tokio::test]
async fn nothing_of_a_link_within_the_process_is_left() {
    let device = Device::new(Link::InProcess);
    let plan = named(Some(device.name())).expect("a device");
    let options = DeviceOptions { device: Some(device.name().to_owned()), ..DeviceOptions::default() };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut listener = EmulatedListener::bind(any, &options).expect("listens");
    for round in 0..4 {
        let mut active = EmulatedConnection::open(listener.local_addr(), &options).await.expect("opens");
        active.establish().expect("asks");
        let request = poll_fn(|cx| listener.poll_request(cx)).await.expect("a request");
        let mut passive = ConnectRequest::accept(request, &options).expect("a connection");
        assert_ne!(plan.live_links(), 0, "counted");
        // Every way to end.
        match round {
            0 => drop((active, passive)),
            1 => drop((passive, active)),
            2 => {
                passive.establish().expect("accepts");
                active.disconnect();
                drop((passive, active));
            }
            _ => {
                passive.establish().expect("accepts");
                passive.disconnect();
                drop((active, passive));
            }
        }
        assert_eq!(plan.live_links(), 0, "round {round}");
    }
}
