//! Nothing, in place of the `metrics` facade.

#[derive(Default)]
pub(super) struct Meters;

impl Meters {
    pub(super) fn batch(&self, _commands: u64) {}
    pub(super) fn replies(&self, _count: u64) {}
    pub(super) fn reconnected(&self) {}
    pub(super) fn retried(&self, _requests: u64) {}
    pub(super) fn timed_out(&self) {}
}
