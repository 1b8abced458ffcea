//! Refuses options that only an RDMA device has.

use crate::device::DeviceOptions;
use crate::error::TransportError;

/// Refuses options that only an RDMA device has.
pub(super) fn check_options(options: &DeviceOptions) -> Result<(), TransportError> {
    let chosen = [
        ("gid", options.gid.is_some()),
        ("source", options.source.is_some()),
        ("completion vector", options.completion_vector != 0),
        ("completion group", options.shared_cq.is_some()),
        ("ACK timeout", options.ack_timeout.is_some()),
        ("retry count", options.retry_count.is_some()),
    ];
    match chosen.into_iter().find(|(_, chosen)| *chosen) {
        Some((option, _)) => Err(TransportError::EmulatedOption { option }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::device::SharedCq;

    #[test]
    fn the_emulated_device_refuses_choices_that_only_a_real_one_offers() {
        check_options(&DeviceOptions::default()).expect("no choices");
        let refused = |options| check_options(&options).expect_err("a choice").to_string();
        let base = DeviceOptions::default;
        for (option, options) in [
            ("gid", DeviceOptions { gid: Some(0), ..base() }),
            ("source", DeviceOptions { source: Some([127, 0, 0, 1].into()), ..base() }),
            ("completion vector", DeviceOptions { completion_vector: 1, ..base() }),
            ("completion group", DeviceOptions { shared_cq: Some(SharedCq::new()), ..base() }),
            ("ACK timeout", DeviceOptions { ack_timeout: Some(Duration::from_secs(1)), ..base() }),
            ("retry count", DeviceOptions { retry_count: Some(6), ..base() }),
        ] {
            assert!(refused(options).contains(option));
        }
    }
}
