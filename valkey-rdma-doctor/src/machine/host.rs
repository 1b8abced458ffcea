//! The name of a host, and the way there.

use super::{Device, HostProbe, Route};
use crate::report::{Finding, Section};

/// The devices are those that are usable.
pub(super) fn section(host: &HostProbe, devices: &[&Device]) -> Section {
    let mut section = Section::about("host", &host.name);
    let routes = match &host.routes {
        Err(error) => {
            section.push(Finding::problem("name", format!("does not resolve: {error}")).remedy(format!(
                "`getent hosts {}`; /etc/hosts and /etc/resolv.conf; or give its address",
                host.name
            )));
            return section;
        }
        Ok(routes) => routes,
    };
    let addresses: Vec<String> = routes.iter().map(|route| route.to.to_string()).collect();
    let ms = host.took.as_secs_f64() * 1e3;
    section.push(Finding::ok("name", format!("{} in {ms:.1} ms", addresses.join(", "))));
    // One address that RDMA reaches is enough.
    let reached = routes.iter().any(|route| served(route, devices).is_some());
    for route in routes {
        let finding = route_finding(route, devices);
        section.push(if reached { finding.at_most_a_warning() } else { finding });
    }
    section
}

fn served(route: &Route, devices: &[&Device]) -> Option<String> {
    let from = route.from.as_ref().ok()?;
    devices.iter().find_map(|device| device.serves(*from))
}

fn route_finding(route: &Route, devices: &[&Device]) -> Finding {
    let to = route.to;
    let from = match &route.from {
        Ok(from) => from,
        Err(error) => {
            return Finding::problem("route", format!("{to}: none ({error})"))
                .remedy(format!("`ip route get {to}`; give this machine an address in that network"));
        }
    };
    if let Some(device) = served(route, devices) {
        return Finding::ok("route", format!("{to} from {from}, {device}"));
    }
    let finding = Finding::problem(
        "route",
        format!("{to} from {from}, which is not the address of a usable RDMA device"),
    );
    let known: Vec<String> = devices
        .iter()
        .filter_map(|device| Some(format!("{} ({})", device.address()?, device.name)))
        .collect();
    if to.is_loopback() && !known.is_empty() {
        finding
            .remedy(format!("RDMA has no loopback address: use this machine's own, {}", known.join(" or ")))
    } else if known.is_empty() {
        finding.remedy("there is none on this machine yet: see above")
    } else {
        finding.remedy(format!("use the host's address in the network of {}", known.join(" or ")))
    }
}
