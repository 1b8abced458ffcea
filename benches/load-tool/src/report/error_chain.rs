//! An error in one line, causes included.

use std::error::Error;
use std::iter;

/// The text of `error` and of everything that caused it.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use valkey_rdma_mock::{BindError, TransportError};

    use super::*;
    use crate::benchmark::RunError;
    use crate::demo::DemoError;

    #[test]
    fn every_cause_is_named_once() {
        let system = || io::Error::from(io::ErrorKind::OutOfMemory);
        let device = TransportError::Device { call: "ibv_alloc_pd", source: system() };
        let demo = RunError::from(DemoError::from(BindError::from(device)));
        let text = format!("the mock server could not start: ibv_alloc_pd failed: {}", system());
        assert_eq!(error_chain(&demo), text);
        let thread = RunError::from(DemoError::from(system()));
        assert_eq!(error_chain(&thread), format!("the mock server could not start: {}", system()));
        let output = RunError::from(system());
        assert_eq!(error_chain(&output), format!("the results could not be written: {}", system()));
    }
}
