//! Direct transfers: whether the server offers them, as the client finds out.

use tokio::time::timeout;
use valkey_rdma_client::{Client, DirectMemory, Error, NotDirect, Purpose, Way};

use super::PATIENCE;
use super::steps::{Connected, cause_of};
use crate::report::Finding;

impl Connected {
    /// Asks by one more connection, which reads a key that does not exist. `None`: this connection has no device.
    pub(super) async fn direct_transfers(&self) -> Option<Finding> {
        self.info.as_ref()?;
        let slice = DirectMemory::allocate(1).ok()?.take(0..1).ok()?;
        let answer = timeout(PATIENCE, self.client.get_direct(NOTHING, [slice])).await;
        Some(match answer {
            Ok(Ok(placed)) => match placed.way {
                Way::Direct => offered(reads(&self.client)),
                Way::Stream(reason) => over_the_stream(&reason),
                way => Finding::note(ID, way.to_string()),
            },
            Ok(Err(Error::Server(error))) => Finding::note(ID, format!("offered, but not this way: {error}")),
            Ok(Err(error)) => Finding::warning(ID, cause_of(&error)),
            Err(_) => Finding::warning(ID, format!("no reply within {PATIENCE:?}")),
        })
    }
}

/// How many READs the connection allows at once.
fn reads(client: &Client) -> u8 {
    let connections = client.connections();
    let bulk = connections.iter().find(|connection| connection.purpose == Purpose::Bulk);
    bulk.and_then(|bulk| bulk.info.read_depth).unwrap_or(0)
}

fn offered(reads: u8) -> Finding {
    match reads {
        0 => Finding::warning(ID, "offered, but the two sides have agreed on no READs: values can only be read directly")
            .remedy("compare the adapters: `ibv_devinfo -v` shows max_qp_rd_atom and max_qp_init_rd_atom, which must not be 0"),
        1 => Finding::ok(ID, "offered, with 1 READ at a time"),
        reads => Finding::ok(ID, format!("offered, with {reads} READs at a time")),
    }
}

fn over_the_stream(reason: &NotDirect) -> Finding {
    match reason {
        NotDirect::NotOffered => Finding::note(ID, "not offered: large values go over the stream"),
        NotDirect::NotRegistered(_) => Finding::warning(ID, format!("offered, but {reason}")),
        _ => Finding::note(ID, format!("large values go over the stream: {reason}")),
    }
}

const ID: &str = "direct";

/// No program has such a key.
const NOTHING: &str = "valkey-rdma-doctor:nothing";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;

    #[test]
    fn without_reads_no_value_can_be_stored_directly() {
        let found = [0, 1, 4].map(offered);
        assert_eq!(found.each_ref().map(|found| found.verdict), [Verdict::Warning, Verdict::Ok, Verdict::Ok]);
        assert_eq!(found[2].value, "offered, with 4 READs at a time");
    }
}
