//! [`Adapter`]: what the emulated device can do at most.

use std::env::{self, VarError};
use std::io;
use std::sync::OnceLock;

use super::MAX_READS;
use crate::device::{DeviceLimits, DeviceOptions};
use crate::error::TransportError;

struct Adapter {
    limits: DeviceLimits,
    /// Longest message that is sent inline, in bytes.
    max_inline: u32,
}

/// What the adapter can do, which this process imitates, of what is asked for.
///
/// # Errors
/// [`TransportError::Device`] if [`VARIABLE`] names none. Those of [`DeviceLimits::fit`].
pub(super) fn fit(options: &DeviceOptions) -> Result<DeviceOptions, TransportError> {
    let adapter = adapter()?;
    let options = adapter.limits.fit("emulated", options)?;
    Ok(DeviceOptions { max_inline: options.max_inline.min(adapter.max_inline), ..options })
}

fn adapter() -> Result<&'static Adapter, TransportError> {
    static CHOSEN: OnceLock<Option<&'static Adapter>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| match env::var(VARIABLE) {
        Err(VarError::NotPresent) => Some(&COMMON),
        Ok(name) if name == "small" => Some(&SMALL),
        _ => None,
    });
    let unknown = || io::Error::new(io::ErrorKind::InvalidInput, "only `small` is known");
    chosen.ok_or_else(|| TransportError::Device { call: VARIABLE, source: unknown().into() })
}

/// The variable of the environment that names the adapter: `small`, or not set.
const VARIABLE: &str = "VALKEY_RDMA_EMULATED_ADAPTER";

/// Its queues take memory as they fill, so more than any adapter has does no harm. Messages sent inline are as long as with common adapters,
/// near enough.
const COMMON: Adapter = Adapter {
    limits: DeviceLimits {
        queue_depth: 1 << 18,
        completion_depth: 1 << 19,
        completion_vectors: 1,
        read_depth: MAX_READS,
    },
    max_inline: 1024,
};

/// Less than any adapter that is known to serve Valkey: Azure's MANA has 2048 completions, which is what our queues ask for.
const SMALL: Adapter = Adapter {
    limits: DeviceLimits { queue_depth: 256, completion_depth: 256, completion_vectors: 1, read_depth: 1 },
    max_inline: 0,
};
