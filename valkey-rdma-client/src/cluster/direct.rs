//! Direct transfers with the node of the key. Each node has a connection for them, on which memory is registered once.

use super::call::{ClusterCall, Target};
use super::client::Cluster;
use super::core::Place;
use super::route::slot_of;
use crate::bulk::{Attempt, Direction, Placed, Transfer};
use crate::command::table::Access;
use crate::error::Error;
use crate::link::Deadline;
use crate::stats::Purpose;

impl Cluster {
    /// Carries a transfer out at the node that serves its key, and follows the slot. The primary, because a direct get reads what was
    /// written before, as a dedicated connection does.
    pub(crate) async fn transfer(&self, mut transfer: Transfer) -> Result<Placed, Error> {
        let deadline = self.core.config.command_timeout.and_then(Deadline::after);
        let target = Target::Slot(slot_of(&transfer.key), Access::Write);
        let is_read = transfer.direction == Direction::Get;
        let call = ClusterCall::new(&self.core, target, deadline, "a direct transfer");
        let mut call = call.repeatable(is_read).dedicated();
        loop {
            let place = call.next().await?;
            let (error, back) = match self.transfer_at(&place, transfer, deadline).await {
                Ok(placed) => return Ok(placed),
                Err(failed) => failed,
            };
            call.failed(&place, error.clone()).await?;
            // Without the slices, there is nothing to try again with.
            transfer = back.ok_or(error)?;
        }
    }

    /// Carries it out at one node. The error comes with the transfer, unless the node may still use its slices.
    async fn transfer_at(
        &self,
        place: &Place,
        transfer: Transfer,
        deadline: Option<Deadline>,
    ) -> Result<Placed, (Error, Option<Transfer>)> {
        let (reason, transfer) = match place.client.attempt_once(transfer, place.asking, deadline).await {
            Attempt::Done(placed) => return Ok(placed),
            Attempt::Failed(error, back) => return Err((error, back)),
            Attempt::NotDirect(reason, transfer) => (reason, transfer),
        };
        let checkout = self.core.checkout(place, Purpose::Dedicated);
        let moved = transfer.over_stream(&place.client, checkout, deadline, reason).await;
        moved.map_err(|(error, transfer)| (error, Some(transfer)))
    }
}
