//! Refuses options that only an RDMA device has.

use crate::device::EndpointOptions;
use crate::error::TransportError;

/// Refuses options that only an RDMA device has.
pub(super) fn check_options(options: &EndpointOptions) -> Result<(), TransportError> {
    let chosen = [
        ("gid", options.gid.is_some()),
        ("source", options.source.is_some()),
        ("completion vector", options.completion_vector != 0),
        ("completion group", options.completion_group.is_some()),
        ("huge pages", options.huge_pages),
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
    use crate::device::CompletionGroup;

    #[test]
    fn the_emulated_device_refuses_choices_that_only_a_real_one_offers() {
        check_options(&EndpointOptions::default()).expect("no choices");
        let refused = |options| check_options(&options).expect_err("a choice").to_string();
        let base = EndpointOptions::default;
        for (option, options) in [
            ("gid", EndpointOptions { gid: Some(0), ..base() }),
            ("source", EndpointOptions { source: Some([127, 0, 0, 1].into()), ..base() }),
            ("completion vector", EndpointOptions { completion_vector: 1, ..base() }),
            (
                "completion group",
                EndpointOptions { completion_group: Some(CompletionGroup::new()), ..base() },
            ),
            ("huge pages", EndpointOptions { huge_pages: true, ..base() }),
            ("ACK timeout", EndpointOptions { ack_timeout: Some(Duration::from_secs(1)), ..base() }),
            ("retry count", EndpointOptions { retry_count: Some(6), ..base() }),
        ] {
            assert!(refused(options).contains(option));
        }
    }
}
