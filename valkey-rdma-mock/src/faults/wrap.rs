//! Faults around a device.

use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::{DeviceConnection, DeviceListener};

use super::endpoint::FaultyEndpoint;
use super::listener::FaultyListener;
use super::spec::Faults;

impl Faults {
    /// Wraps a listener's device. Each accepted connection runs its own copy of the script.
    pub fn listener(&self, passive: Box<dyn DeviceListener>) -> Box<dyn DeviceListener> {
        Box::new(FaultyListener::new(passive, self.clone()))
    }

    /// Wraps one device connection that is not connected yet.
    ///
    /// # Errors
    /// [`TransportError::Memory`] if there is no memory for the messages that the script adds.
    pub fn endpoint(
        &self,
        endpoint: Box<dyn DeviceConnection>,
    ) -> Result<Box<dyn DeviceConnection>, TransportError> {
        Ok(Box::new(FaultyEndpoint::new(endpoint, self.script())?))
    }
}
