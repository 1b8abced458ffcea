//! An error in one line, causes included.

use std::error::Error;

/// The text of `error` and of everything that caused it.
pub(crate) fn story(error: &dyn Error) -> String {
    let mut story = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        story.push_str(": ");
        story.push_str(&error.to_string());
        cause = error.source();
    }
    story
}

#[cfg(test)]
mod tests {
    use std::io;

    use valkey_rdma_mock::{BindError, TransportError};

    use super::*;
    use crate::benchmark::RunError;
    use crate::demo::DemoError;

    #[test]
    fn a_story_has_every_cause_once() {
        let system = || io::Error::from(io::ErrorKind::OutOfMemory);
        let device = TransportError::Device { call: "ibv_alloc_pd", source: system() };
        let demo = RunError::from(DemoError::from(BindError::from(device)));
        let text = format!("the mock server could not start: ibv_alloc_pd failed: {}", system());
        assert_eq!(story(&demo), text);
        let thread = RunError::from(DemoError::from(system()));
        assert_eq!(story(&thread), format!("the mock server could not start: {}", system()));
        let output = RunError::from(system());
        assert_eq!(story(&output), format!("the results could not be written: {}", system()));
    }
}
